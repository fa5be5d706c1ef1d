"""Schedules, and the ledger of their fires."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response

from api.action_schemas import Why
from api.deps import IdempotencyKey, Paging, ReadRuns, WriteRuns, keyed, no_query
from api.problems import problems
from api.schedule_schemas import Fire, NewSchedule, Schedule
from api.schemas import PageOf
from runlane.db import schedules
from runlane.db.engine import driver
from runlane.db.idempotency import Answer, once
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/schedules", tags=["schedules"])

ScheduleId = Annotated[UUID, Path(description="id of a schedule")]

ROUTE = "POST /v1/schedules"
CREATED = 201


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
    return made


@router.get("")
async def index(access: ReadRuns, query: Paging) -> PageOf[Schedule]:
    """Lists schedules; sorts by `created_at` or `name`."""
    page = await schedules.list_schedules(access.conn, access.workspace_id, query.page)
    return PageOf[Schedule].model_validate(page, from_attributes=True)


@router.get("/{schedule_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, schedule_id: ScheduleId) -> Schedule:
    """Shows one schedule and when it fires next."""
    found = await schedules.get_schedule(driver(access.conn), access.workspace_id, schedule_id)
    return Schedule.model_validate(found)


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
