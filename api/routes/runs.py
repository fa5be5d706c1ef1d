"""Runs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Query, Response
from pydantic import Field

from api.deps import IdempotencyKey, Opened, PageQuery, ReadRuns, WriteRuns, no_query
from api.problems import problems
from api.schemas import CancelRun, NewRun, PageOf, Run, RunCancelled, RunDetail, RunRef
from runlane.db.cancel import cancel_run
from runlane.db.engine import driver
from runlane.db.idempotency import IdempotentRequest, hash_body
from runlane.db.queries import get_run, list_runs
from runlane.db.run_requests import ROUTE, RunRequest, accept_run, resume_run
from runlane.errors import Conflict, NotFound
from runlane.jobs import RunStatus
from workflows.starting import RunToStart

router = APIRouter(prefix="/runs", tags=["runs"])

RunId = Annotated[UUID, Path(description="id of a run")]


class RunQuery(PageQuery):
    """Which runs."""

    status: list[RunStatus] = Field(default_factory=list, max_length=5, description="may be repeated")


@router.get("")
async def index(access: ReadRuns, query: Annotated[RunQuery, Query()]) -> PageOf[Run]:
    """Lists runs; sorts by `created_at`."""
    page = await list_runs(access.conn, access.workspace_id, query.status, query.page)
    return PageOf[Run].model_validate(page, from_attributes=True)


@router.post("", status_code=202, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def start(
    access: WriteRuns,
    body: NewRun,
    response: Response,
    background: BackgroundTasks,
    opened: Opened,
    key: IdempotencyKey = None,
) -> RunRef:
    """Accepts a run: its rows are written when this answers. `Location` is where to watch it."""
    accepted = await accept_run(driver(access.conn), _request(access, body), _key(access, body, key))
    ref = RunRef.model_validate(accepted.answer.response)
    if (run := accepted.written) is None:
        response.headers["Idempotency-Replayed"] = "true"
    else:
        to_start = RunToStart(ref.run_id, run.workspace_id, run.name, run.kind)
        background.add_task(opened.starter.start_soon, to_start)  # runs after the commit
    response.headers["Location"] = f"/v1/runs/{ref.run_id}"
    return ref


@router.get("/{run_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, run_id: RunId) -> RunDetail:
    """Shows one run with its steps and its jobs counted by status."""
    return RunDetail.model_validate(await get_run(access.conn, access.workspace_id, run_id))


@router.post("/{run_id}/cancel", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def cancel(access: WriteRuns, run_id: RunId, body: CancelRun | None = None) -> RunCancelled:
    """Cancels a run and all its jobs that have not ended. Final at once; results in flight are discarded."""
    reason = body.reason if body else None
    result = await cancel_run(driver(access.conn), access.workspace_id, run_id, reason)
    return RunCancelled(run_id=run_id, status=RunStatus.CANCELLED, jobs=result.jobs)


@router.post(
    "/{run_id}/resume",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def resume(access: WriteRuns, run_id: RunId) -> RunRef:
    """Starts the workflow of an open run again, from its rows; harmless while it runs."""
    status = await resume_run(driver(access.conn), access.workspace_id, run_id)
    return RunRef(run_id=run_id, status=status)


def _request(access: WriteRuns, body: NewRun) -> RunRequest:
    return RunRequest(
        workspace_id=access.workspace_id,
        definition=body.definition,
        targets=body.targets,
        name=body.name,
        priority=body.priority,
        config=body.config,
        created_by=access.principal.name,
    )


def _key(access: WriteRuns, body: NewRun, key: str | None) -> IdempotentRequest | None:
    if key is None:
        return None
    return IdempotentRequest(access.workspace_id, ROUTE, key, hash_body(body.model_dump(mode="json")))
