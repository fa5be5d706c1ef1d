"""Jobs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field

from api.action_schemas import (
    CancelJobs,
    JobCancelled,
    NewPriority,
    Operation,
    Prioritised,
    Rerun,
    RerunJob,
    Why,
)
from api.deps import IdempotencyKey, PageQuery, ReadJobs, WriteJobs, WriteRuns, keyed, no_query
from api.problems import problems
from api.reruns import Reruns
from api.schemas import Job, JobDetail, PageOf
from runlane.db import idempotency, operations, priorities
from runlane.db.cancel import cancel_job
from runlane.db.engine import driver
from runlane.db.idempotency import Answer
from runlane.db.operations import Which
from runlane.db.queries import JobFilter, get_job, list_jobs
from runlane.db.remerge import remerge_job
from runlane.db.reruns import rerun_job
from runlane.errors import Conflict, NotFound
from runlane.jobs import JobStatus

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobId = Annotated[UUID, Path(description="id of a job")]


class JobQuery(PageQuery):
    """Which jobs."""

    run: UUID | None = Field(None, description="id of a run")
    step: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_-]+$", description="id of a step")
    tool: str | None = Field(None, max_length=80, pattern=r"^[a-z0-9_-]+$", description="id of a tool")
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


@router.post(
    "/cancel", status_code=202, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict)
)
async def cancel_many(
    access: WriteJobs, body: CancelJobs, response: Response, key: IdempotencyKey = None
) -> Operation:
    """Cancels every job that fits and has not ended, in portions; `Location` shows how far it is."""
    conn = driver(access.conn)
    which = Which(body.run, body.step, body.tool, body.target, body.status)

    async def begin() -> Answer:
        row = await operations.begin_cancel(conn, access.workspace_id, which, access.act(body.reason))
        return Answer(202, Operation.model_validate(row).model_dump(mode="json"))

    answer = await idempotency.once(conn, keyed(access, "POST /v1/jobs/cancel", key, body), begin)
    operation = Operation.model_validate(answer.response)
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return operation


@router.get("/{job_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadJobs, job_id: JobId) -> JobDetail:
    """Shows one job with its input, its attempts and its errors."""
    return JobDetail.model_validate(await get_job(access.conn, access.workspace_id, job_id))


@router.post("/{job_id}/cancel", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def cancel(access: WriteJobs, job_id: JobId, body: Why | None = None) -> JobCancelled:
    """Cancels a job, final at once. Its process dies; others of its batch go on."""
    act = access.act(body.reason if body else None)
    is_changed = await cancel_job(driver(access.conn), access.workspace_id, job_id, act)
    return JobCancelled(job_id=job_id, status=JobStatus.CANCELLED, changed=is_changed)


@router.post("/{job_id}/priority", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def prioritise(access: WriteJobs, job_id: JobId, body: NewPriority) -> Prioritised:
    """Gives a job that has not ended a priority; one that waits is dispatched anew in its new place."""
    act = access.act(body.reason)
    done = await priorities.prioritise_job(
        driver(access.conn), access.workspace_id, job_id, body.priority, act
    )
    return Prioritised(run_id=done.run_id, priority=body.priority, jobs=done.jobs, moved=done.moved)


@router.post(
    "/{job_id}/remerge",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def remerge(
    access: WriteRuns,
    job_id: JobId,
    reruns: Reruns,
    body: Why | None = None,
    key: IdempotencyKey = None,
) -> Rerun:
    """Merges the kept result of a job anew whose merge had failed, as a new job; nothing is scanned."""
    wanted = body or Why()
    conn, act = driver(access.conn), access.act(wanted.reason)
    request = keyed(access, f"POST /v1/jobs/{job_id}/remerge", key, wanted)

    return await reruns.answer(conn, request, lambda: remerge_job(conn, access.workspace_id, job_id, act))


@router.post(
    "/{job_id}/rerun",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def rerun(
    access: WriteRuns,
    job_id: JobId,
    reruns: Reruns,
    body: RerunJob | None = None,
    key: IdempotencyKey = None,
) -> Rerun:
    """Does a job once more that has ended: in its run if its step is open, else in a new run."""
    wanted = body or RerunJob()
    conn, act = driver(access.conn), access.act(wanted.reason)
    request = keyed(access, f"POST /v1/jobs/{job_id}/rerun", key, wanted)

    return await reruns.answer(
        conn, request, lambda: rerun_job(conn, access.workspace_id, job_id, act, follow=wanted.follow)
    )
