"""What attempts of a job ran, how they ended, and what they brought."""

import asyncio
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api.deps import ReadJobs, no_query
from api.problems import problems
from api.reading import JobReader, JobReading
from api.view_schemas import AttemptDetail, Items, JobErrorDetail
from runlane.db.engine import driver
from runlane.db.views.evidence import KeptResult, attempts_of_job, errors_of_job, gone, kept_result
from runlane.errors import Conflict, NotFound
from runlane.storage import CorruptObject
from runlane.tools.staged import TooManyBytes, own_lines

router = APIRouter(prefix="/jobs", tags=["jobs"])

MAX_DOWNLOAD_BYTES: Final = 32 * 1024 * 1024
"""Lines of one job; twice what a scan worker keeps of it."""

JobId = Annotated[UUID, Path(description="id of a job")]


class ResultQuery(BaseModel):
    """Which result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempt: int | None = Field(None, ge=1, lt=2**31, description="default: the last that left something")


@router.get("/{job_id}/attempts", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def attempts(access: ReadJobs, job_id: JobId) -> Items[AttemptDetail]:
    """Lists the attempts of a job, the newest first: worker, arguments, tool version, outcome."""
    rows = await attempts_of_job(driver(access.conn), access.workspace_id, job_id)
    return Items[AttemptDetail].model_validate({"items": [dict(row) for row in rows]})


@router.get("/{job_id}/errors", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def errors(access: ReadJobs, job_id: JobId) -> Items[JobErrorDetail]:
    """Lists the errors of a job, the last first, with what it had found until then."""
    rows = await errors_of_job(driver(access.conn), access.workspace_id, job_id)
    return Items[JobErrorDetail].model_validate({"items": [dict(row) for row in rows]})


@router.get(
    "/{job_id}/result",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {}}}, **problems(NotFound, Conflict)},
)
async def result(reader: JobReading, job_id: JobId, query: Annotated[ResultQuery, Query()]) -> Response:
    """Downloads what an attempt staged, as it is, while it is kept: lines of this job only."""
    async with reader.transaction() as conn:
        kept = await kept_result(driver(conn), reader.workspace_id, job_id, query.attempt)
    async with reader.resources.downloads:
        body = await _lines(reader, kept)
    name = f"job-{job_id}-attempt-{kept.attempt}.ndjson"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        # whatever a target said is in it: no browser may take it for a page
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }
    return Response(body, media_type="application/x-ndjson", headers=headers)


async def _lines(reader: JobReader, kept: KeptResult) -> bytes:
    body = kept.body or b""
    try:
        if kept.object_key is not None:
            storage = reader.resources.storage
            body = await storage.load(kept.object_key, size_bytes=kept.size_bytes, sha256=kept.sha256)
        lines = await asyncio.to_thread(own_lines, body, kept.begins, MAX_DOWNLOAD_BYTES)
    except (CorruptObject, TooManyBytes) as error:
        raise Conflict("the kept result cannot be read", code="result.unreadable") from error
    if not lines:
        raise gone()
    return lines
