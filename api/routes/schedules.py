"""Schedules, and the ledger of their fires."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response

from api.action_schemas import Why
from api.deps import IdempotencyKey, Paging, ReadRuns, WriteRuns, keyed, no_query
from api.etags import IfMatch, etag, version_in
from api.problems import problems
from api.schedule_schemas import EditedSchedule, Fire, NewSchedule, Schedule
from api.schemas import PageOf
from runlane.db import fires as ledger
from runlane.db import schedules
from runlane.db.engine import driver
from runlane.db.idempotency import Answer, once
from runlane.errors import Conflict, NotFound, Stale, Unconditional

router = APIRouter(prefix="/schedules", tags=["schedules"])

ScheduleId = Annotated[UUID, Path(description="id of a schedule")]

ROUTE = "POST /v1/schedules"
CREATED = 201
FIRED = 200


@router.post("", status_code=CREATED, dependencies=[Depends(no_query)], responses=problems(Conflict))
async def create(
    access: WriteRuns, body: NewSchedule, response: Response, key: IdempotencyKey = None
) -> Schedule:
    """Makes a schedule. What is wrong with it is said all at once."""
    conn = driver(access.conn)
    wanted = schedules.NewSchedule(access.workspace_id, body.name, body.run, body.spec)

    async def make() -> Answer:
        made = await schedules.create_schedule(conn, wanted, access.act(None))
        return Answer(CREATED, Schedule.model_validate(made).model_dump(mode="json"))

    answer = await once(conn, keyed(access, ROUTE, key, body), make)
    made = Schedule.model_validate(answer.response)
    response.headers["Location"] = f"/v1/schedules/{made.id}"
    response.headers["ETag"] = etag(made.version)
    return made


@router.get("")
async def index(access: ReadRuns, query: Paging) -> PageOf[Schedule]:
    """Lists schedules; sorts by `created_at` or `name`."""
    page = await schedules.list_schedules(access.conn, access.workspace_id, query.page)
    return PageOf[Schedule].model_validate(page, from_attributes=True)


@router.get("/{schedule_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, schedule_id: ScheduleId, response: Response) -> Schedule:
    """Shows one schedule and when it fires next."""
    found = await schedules.get_schedule(driver(access.conn), access.workspace_id, schedule_id)
    shown = Schedule.model_validate(found)
    response.headers["ETag"] = etag(shown.version)
    return shown


@router.patch(
    "/{schedule_id}",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict, Stale, Unconditional),
)
async def edit(
    access: WriteRuns,
    schedule_id: ScheduleId,
    body: EditedSchedule,
    response: Response,
    if_match: IfMatch = None,
) -> Schedule:
    """Changes what a schedule starts, when, or its name; its runs go on. `If-Match` is its `ETag`."""
    wanted = schedules.Edit(version_in(if_match), body.name, body.run, body.spec)
    done = await schedules.edit_schedule(
        driver(access.conn), access.workspace_id, schedule_id, wanted, access.act(None)
    )
    edited = Schedule.model_validate(done)
    response.headers["ETag"] = etag(edited.version)
    return edited


@router.post("/{schedule_id}/run", responses=problems(NotFound))
async def run_now(
    access: WriteRuns, schedule_id: ScheduleId, body: Why | None = None, key: IdempotencyKey = None
) -> Fire:
    """Fires a schedule now, also a paused one; answers what became of it, as the ledger has it."""
    wanted, conn = body or Why(), driver(access.conn)

    async def make() -> Answer:
        fired = await ledger.fire_now(conn, access.workspace_id, schedule_id, access.act(wanted.reason))
        return Answer(FIRED, Fire.model_validate(fired).model_dump(mode="json"))

    answer = await once(conn, keyed(access, f"{ROUTE}/{schedule_id}/run", key, wanted), make)
    return Fire.model_validate(answer.response)


@router.get("/{schedule_id}/fires", responses=problems(NotFound))
async def fires(access: ReadRuns, schedule_id: ScheduleId, query: Paging) -> PageOf[Fire]:
    """Lists what became of each fire: ran, skipped, buffered or missed, and why; sorts by `due_at`."""
    await schedules.get_schedule(driver(access.conn), access.workspace_id, schedule_id)
    page = await schedules.list_fires(access.conn, access.workspace_id, schedule_id, query.page)
    return PageOf[Fire].model_validate(page, from_attributes=True)


@router.post("/{schedule_id}/pause", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def pause(access: WriteRuns, schedule_id: ScheduleId, body: Why | None = None) -> Schedule:
    """Lets a schedule fire no more until it is resumed; its runs go on."""
    act = access.act(body.reason if body else None)
    done = await schedules.pause_schedule(driver(access.conn), access.workspace_id, schedule_id, act)
    return Schedule.model_validate(done)


@router.post("/{schedule_id}/resume", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def resume(access: WriteRuns, schedule_id: ScheduleId, body: Why | None = None) -> Schedule:
    """Lets a schedule fire again from now on; what was due meanwhile is not made up for."""
    act = access.act(body.reason if body else None)
    done = await schedules.resume_schedule(driver(access.conn), access.workspace_id, schedule_id, act)
    return Schedule.model_validate(done)


@router.post("/{schedule_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def delete(access: WriteRuns, schedule_id: ScheduleId, body: Why | None = None) -> Schedule:
    """Deletes a schedule; its runs go on."""
    act = access.act(body.reason if body else None)
    done = await schedules.delete_schedule(driver(access.conn), access.workspace_id, schedule_id, act)
    return Schedule.model_validate(done)
