"""Why jobs are pending."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from api.deps import Opened, ReadJobs, ReadRuns, no_query
from api.problems import problems
from api.view_schemas import Items, JobWhy, RunWhy, WaitingHead
from runlane.db.engine import driver
from runlane.db.views.heads import heads
from runlane.db.views.why import why_job, why_run
from runlane.errors import NotFound

router = APIRouter()

JobId = Annotated[UUID, Path(description="id of a job")]
RunId = Annotated[UUID, Path(description="id of a run")]


class WhyQuery(BaseModel):
    """Which jobs of the run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_-]+$", description="only of this step")


@router.get(
    "/jobs/{job_id}/why", tags=["jobs"], dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def of_job(access: ReadJobs, opened: Opened, job_id: JobId) -> JobWhy:
    """Says why a job is pending: one reason, and everything that was looked at."""
    async with opened.system_pool.acquire() as conn:
        found = await why_job(conn, access.workspace_id, job_id)
    return JobWhy.model_validate(found, from_attributes=True)


@router.get("/waiting", tags=["jobs"], dependencies=[Depends(no_query)])
async def longest(access: ReadJobs) -> Items[WaitingHead]:
    """Says which job has waited longest, for each tool set and priority: urgent ones go before all others."""
    found = await heads(driver(access.conn), access.workspace_id)
    return Items(items=[WaitingHead.model_validate(each, from_attributes=True) for each in found])


@router.get("/runs/{run_id}/why", tags=["runs"], responses=problems(NotFound))
async def of_run(
    access: ReadRuns, opened: Opened, run_id: RunId, query: Annotated[WhyQuery, Query()]
) -> RunWhy:
    """Says what the pending jobs of a run wait for, step by step."""
    async with opened.system_pool.acquire() as conn:
        found = await why_run(conn, access.workspace_id, run_id, query.step)
    return RunWhy.model_validate(found, from_attributes=True)
