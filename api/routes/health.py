"""Whether the process lives, and whether it may be given requests. Open to all, so it tells nothing else."""

from typing import Final

from fastapi import APIRouter, Response

from api.deps import Opened
from api.schemas import Health
from runlane.db.engine import DRIVER_ERRORS
from runlane.db.pool import ping

router = APIRouter(tags=["health"])

PATIENCE_S: Final = 2.0
"""A database that takes longer is as good as away."""


@router.get("/healthz")
async def healthz() -> Health:
    """Answers while the process lives."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(opened: Opened, response: Response) -> Health:
    """Answers 200 while the database does; Temporal may be away, a run is accepted all the same."""
    try:
        await ping(opened.system_pool, timeout_s=PATIENCE_S)
    except DRIVER_ERRORS:
        response.status_code = 503
        return Health(status="unavailable")
    return Health(status="ok")
