"""Jobs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from api.deps import PageQuery, ReadJobs, no_query
from api.problems import problems
from api.schemas import Job, JobDetail, PageOf
from runlane.db.queries import JobFilter, get_job, list_jobs
from runlane.errors import NotFound
from runlane.jobs import JobStatus

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobId = Annotated[UUID, Path(description="id of a job")]


class JobQuery(PageQuery):
    """Which jobs."""

    run: UUID | None = Field(None, description="id of a run")
    step: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_-]+$", description="id of a step")
    tool: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_-]+$", description="name of a tool")
    status: list[JobStatus] = Field(default_factory=list, max_length=6, description="may be repeated")

    @property
    def wanted(self) -> JobFilter:
        """The filter as the query knows it."""
        return JobFilter(self.run, self.step, self.tool, self.status)


@router.get("")
async def index(access: ReadJobs, query: Annotated[JobQuery, Query()]) -> PageOf[Job]:
    """Lists jobs; sorts by `created_at`, `due_at` or `priority`."""
    page = await list_jobs(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Job].model_validate(page, from_attributes=True)


@router.get("/{job_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadJobs, job_id: JobId) -> JobDetail:
    """Shows one job with its input, its attempts and its errors."""
    return JobDetail.model_validate(await get_job(access.conn, access.workspace_id, job_id))
