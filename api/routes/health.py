"""Whether the process lives, and whether it may be given requests. Open to all, so it tells nothing else."""

from fastapi import APIRouter, Response

from api.deps import Opened
from api.schemas import Health
from runlane.db.engine import DRIVER_ERRORS

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Answers while the process lives."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(opened: Opened, response: Response) -> Health:
    """Answers 200 while the database does; Temporal may be away, a run is accepted all the same."""
    try:
        await opened.system_pool.fetchval("SELECT 1", timeout=2)
    except DRIVER_ERRORS:
        response.status_code = 503
        return Health(status="unavailable")
    return Health(status="ok")
