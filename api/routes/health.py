"""Whether the process lives, and whether it may be given requests. Open to all, so it tells nothing else."""

import asyncio
from typing import Final

from fastapi import APIRouter, Response

from api.deps import Opened
from api.schemas import Health
from runlane.db.engine import DRIVER_ERRORS
from runlane.db.pool import ping
from runlane.errors import Unavailable

router = APIRouter(tags=["health"])

PATIENCE_S: Final = 2.0
"""A database that takes longer is as good as away."""


@router.get("/healthz")
async def healthz() -> Health:
    """Answers while the process lives."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(opened: Opened, response: Response) -> Health:
    """Answers 200 while the database does and has the schema; Temporal may be away, runs are accepted."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await opened.schema.require()
        await ping(opened.system_pool, timeout_s=PATIENCE_S)
    except (*DRIVER_ERRORS, Unavailable):
        response.status_code = 503
        return Health(status="unavailable")
    return Health(status="ok")
