"""Runs."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from api.action_schemas import NewPriority, Pause, Prioritised, Rerun, RerunRun, Why
from api.deps import IdempotencyKey, Opened, PageQuery, ReadRuns, WriteRuns, keyed, no_query
from api.planning import plan_run
from api.problems import problems
from api.reruns import Reruns
from api.schemas import NewRun, PageOf, Printable, Run, RunCancelled, RunDetail, RunRef
from api.view_schemas import Moment, RunPlan
from runlane.db import pauses, priorities
from runlane.db.cancel import cancel_run
from runlane.db.engine import driver
from runlane.db.pauses import NewPause
from runlane.db.reruns import rerun_run
from runlane.db.run_requests import ROUTE, RunRequest, accept_run, resume_run
from runlane.db.views.runs import RunFilter, get_run, list_runs
from runlane.errors import Conflict, NotFound
from runlane.jobs import RunStatus
from workflows.starting import RunToStart

router = APIRouter(prefix="/runs", tags=["runs"])

RunId = Annotated[UUID, Path(description="id of a run")]


class RunQuery(PageQuery):
    """Which runs."""

    status: list[RunStatus] = Field(default_factory=list, max_length=5, description="may be repeated")
    kind: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_-]+$", description="kind of run")
    name: Printable | None = Field(None, max_length=200, description="a part of the name, in any case")
    started_by: Printable | None = Field(None, max_length=200, description="name of whoever started it")
    since: Moment | None = Field(None, description="created at this moment or later")
    until: Moment | None = Field(None, description="created before this moment")

    @property
    def wanted(self) -> RunFilter:
        """The filter as the query knows it."""
        return RunFilter(self.status, self.kind, self.name, self.started_by, self.since, self.until)


@router.get("")
async def index(access: ReadRuns, query: Annotated[RunQuery, Query()]) -> PageOf[Run]:
    """Lists runs; sorts by `created_at`, `name`, `status` or `started_by`."""
    page = await list_runs(access.conn, access.workspace_id, query.wanted, query.page)
    return PageOf[Run].model_validate(page, from_attributes=True)


class StartQuery(BaseModel):
    """Whether to start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    plan: bool = Field(default=False, description="only say what the run would do; nothing is written")


@router.post(
    "",
    status_code=202,
    response_model=RunRef,
    responses={200: {"model": RunPlan, "description": "the plan"}, **problems(NotFound, Conflict)},
)
async def start(
    access: WriteRuns,
    body: NewRun,
    query: Annotated[StartQuery, Query()],
    response: Response,
    background: BackgroundTasks,
    opened: Opened,
    key: IdempotencyKey = None,
) -> RunRef | Response:
    """Accepts a run: its rows are written when this answers. `Location` is where to watch it."""
    if query.plan:
        plan = await plan_run(access, opened, _request(access, body))
        return JSONResponse(plan.model_dump(mode="json"))
    accepted = await accept_run(driver(access.conn), _request(access, body), keyed(access, ROUTE, key, body))
    ref = RunRef.model_validate(accepted.answer.response)
    if (run := accepted.written) is None:
        response.headers["Idempotency-Replayed"] = "true"
    else:
        to_start = RunToStart(ref.run_id, run.workspace_id, run.name, run.kind)
        background.add_task(opened.starter.start_soon, to_start)  # runs after the commit
    response.headers["Location"] = f"/v1/runs/{ref.run_id}"
    return ref


@router.get("/{run_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, opened: Opened, run_id: RunId) -> RunDetail:
    """Shows one run with its steps and its jobs counted by status."""
    found = await get_run(access.conn, access.workspace_id, run_id, opened.tallies)
    return RunDetail.model_validate(found)


@router.post("/{run_id}/cancel", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def cancel(access: WriteRuns, run_id: RunId, body: Why | None = None) -> RunCancelled:
    """Cancels a run, final at once, and its jobs that have not ended; results in flight are discarded.

    Of more than a thousand jobs the rest follows in portions, as an operation; nothing of them is begun.
    """
    act = access.act(body.reason if body else None)
    result = await cancel_run(driver(access.conn), access.workspace_id, run_id, act)
    return RunCancelled(run_id=run_id, status=RunStatus.CANCELLED, jobs=result.jobs)


@router.post(
    "/{run_id}/resume",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def resume(access: WriteRuns, run_id: RunId, body: Why | None = None) -> RunRef:
    """Lets an open run go on: lifts its pause, and starts its workflow if it is gone. Else harmless."""
    act = access.act(body.reason if body else None)
    status = await resume_run(driver(access.conn), access.workspace_id, run_id, act)
    return RunRef(run_id=run_id, status=status)


@router.post("/{run_id}/pause", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def pause(access: WriteRuns, run_id: RunId, body: Why | None = None) -> Pause:
    """Stops dispatch of a run until it is resumed; what runs is finished."""
    wanted = NewPause(access.workspace_id, run_id=run_id)
    done = await pauses.pause(driver(access.conn), wanted, access.act(body.reason if body else None))
    return Pause.model_validate(done.row)


@router.post("/{run_id}/priority", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def prioritise(access: WriteRuns, run_id: RunId, body: NewPriority) -> Prioritised:
    """Gives a run a priority, with all its jobs that have not ended or are still to come."""
    act = access.act(body.reason)
    done = await priorities.prioritise_run(
        driver(access.conn), access.workspace_id, run_id, body.priority, act
    )
    return Prioritised(run_id=run_id, priority=body.priority, jobs=done.jobs, moved=done.moved)


@router.post(
    "/{run_id}/rerun",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def rerun(
    access: WriteRuns,
    run_id: RunId,
    reruns: Reruns,
    body: RerunRun | None = None,
    key: IdempotencyKey = None,
) -> Rerun:
    """Does a run once more as a new run: whole, or from a step on with all that needs it."""
    wanted = body or RerunRun()
    conn, act = driver(access.conn), access.act(wanted.reason)
    request = keyed(access, f"POST /v1/runs/{run_id}/rerun", key, wanted)

    return await reruns.answer(
        conn, request, lambda: rerun_run(conn, access.workspace_id, run_id, act, from_step=wanted.from_step)
    )


def _request(access: WriteRuns, body: NewRun) -> RunRequest:
    return RunRequest(
        workspace_id=access.workspace_id,
        definition=body.definition,
        targets=body.targets,
        groups=body.groups,
        tags=body.tags,
        name=body.name,
        priority=body.priority,
        config=body.config,
        created_by=access.principal.name,
    )
