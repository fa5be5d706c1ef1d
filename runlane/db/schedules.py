"""Schedules of a workspace, as rows: made, edited, paused, resumed, deleted; and what Temporal is told.

The row is the truth. Each change writes a command, and whoever relays it reads the row as it is then:
commands may be told twice and in any order. `expected_at` is the first fire that the ledger does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox, waiting_fires
from runlane.db.acts import Act
from runlane.db.commands import write_schedule
from runlane.db.definitions import find_definition
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.selections import keep_groups, missing_targets
from runlane.db.tables import schedule_fires, schedules
from runlane.errors import Conflict, Invalid, NotFound, Stale
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import ScheduleCreated, ScheduleDeleted, ScheduleUpdated
from runlane.given_names import check_given_name
from runlane.schedules import MAX_SCHEDULES, spec_faults, timing_of

NEXT_FIRES: Final = 5
"""Coming fires that an answer lists."""

ORDERS: Final[Orders] = {"created_at": (schedules.c.id,), "name": (schedules.c.name, schedules.c.id)}
FIRE_ORDERS: Final[Orders] = {"due_at": (schedule_fires.c.due_at,)}


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """What a caller asks for. `run`: what a fire starts; `spec`: when it fires. Both as JSON."""

    workspace_id: UUID
    name: str
    run: Mapping[str, object]
    spec: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Edit:
    """What a caller wants changed, field by field, and the version that this was made from."""

    version: int
    name: str | None = None
    run: Mapping[str, object] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule as Temporal is to have it."""

    schedule_id: UUID
    workspace_id: UUID | None = None
    spec: Mapping[str, object] | None = None
    """None: it is deleted."""
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """What a person does to a schedule: the word for it and its statement."""

    word: str
    statement: str


_NOW: Final = "SELECT clock_timestamp()"
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_COUNT: Final = "SELECT count(*)::int FROM schedules WHERE workspace_id = $1 AND deleted_at IS NULL"
_INSERT: Final = """
INSERT INTO schedules (workspace_id, name, run, spec, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id, name) WHERE deleted_at IS NULL DO NOTHING
RETURNING *
"""

_EXPECT: Final = "UPDATE schedules SET expected_at = $2 WHERE id = $1"

_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM schedules
               WHERE workspace_id = $1 AND name = $2 AND id <> $3 AND deleted_at IS NULL)
"""

_HOLD: Final = """
SELECT * FROM schedules WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE
"""

_FIND: Final = "SELECT * FROM schedules WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL"


def _update(what: str) -> str:
    return f"UPDATE schedules SET {what}, version = version + 1 WHERE id = $1 RETURNING *"


_PAUSE: Final = _Change("paused", _update("paused_at = clock_timestamp(), expected_at = NULL"))

_RESUME: Final = _Change("resumed", _update("paused_at = NULL, expected_at = $2"))

_EDIT: Final = _Change("edited", _update("name = $2, run = $3, spec = $4, expected_at = $5"))

_DELETE: Final = _update("deleted_at = clock_timestamp(), expected_at = NULL")

_TRY: Final = """
SELECT id FROM unnest($1::uuid[]) u (id)
WHERE pg_try_advisory_xact_lock(hashtextextended('schedule/' || id, 0))
"""

_PLANS: Final = """
SELECT s.id, s.workspace_id, s.spec, s.paused_at IS NOT NULL AS is_paused
FROM schedules s JOIN workspaces w ON w.id = s.workspace_id
WHERE s.id = ANY($1::uuid[]) AND s.deleted_at IS NULL AND w.deleted_at IS NULL
"""


async def create_schedule(conn: Connection, wanted: NewSchedule, act: Act) -> dict[str, object]:
    """Writes a schedule and the command that Temporal is to be told; answers its row.

    Raises:
        Invalid: `name.ambiguous`; `schedule.invalid`, with every fault of its times, definition, options and
            targets at once.
        Conflict: `schedule.duplicate`, the name is taken; `schedule.too_many`.
    """
    now = await conn.fetchval(_NOW)
    check_given_name(wanted.name)
    run = await _checked(conn, wanted, now)
    await conn.execute(_LOCK, f"schedules/{wanted.workspace_id}")
    if await conn.fetchval(_COUNT, wanted.workspace_id) >= MAX_SCHEDULES:
        raise Conflict(f"a workspace has at most {MAX_SCHEDULES} schedules", code="schedule.too_many")
    row = await conn.fetchrow(_INSERT, wanted.workspace_id, wanted.name, run, dict(wanted.spec), act.name)
    if row is None:
        raise _duplicate()
    await conn.execute(_EXPECT, row["id"], timing_of(row["spec"], row["id"]).next_fire(now))
    payload = ScheduleCreated(schedule_id=row["id"], name=row["name"])
    created = envelope(
        EVENT_CATALOG.scan.schedule.created,
        payload,
        workspace_id=wanted.workspace_id,
        subject=names.schedule_subject(row["id"]),
        actor=act.actor,
    )
    await _tell(conn, row, created)
    return _with_next(row, now)


async def edit_schedule(
    conn: Connection, workspace_id: UUID, schedule_id: UUID, edit: Edit, act: Act
) -> dict[str, object]:
    """Changes what a schedule starts, when it fires, or its name; its runs go on, and what waits looks again.

    From now on it fires as it says now: the ledger says nothing of old times that were not decided yet.

    Raises:
        NotFound: `schedule.not_found`.
        Stale: `etag.stale`, it was changed since that version.
        Invalid: `name.ambiguous`; `schedule.invalid`, with every fault at once.
        Conflict: `schedule.duplicate`, the name is taken.
    """
    row = await _hold(conn, workspace_id, schedule_id)
    if row["version"] != edit.version:
        raise Stale(f"the schedule was changed: it is version {row['version']} now")
    now = await conn.fetchval(_NOW)
    wanted = NewSchedule(
        workspace_id, edit.name or row["name"], {**row["run"], **edit.run}, {**row["spec"], **edit.spec}
    )
    check_given_name(wanted.name)
    run = await _checked(conn, wanted, now)
    await conn.execute(_LOCK, f"schedules/{workspace_id}")
    if await conn.fetchval(_IS_TAKEN, workspace_id, wanted.name, schedule_id):
        raise _duplicate()
    expected_at = row["expected_at"]
    if dict(wanted.spec) != row["spec"] and row["paused_at"] is None:
        expected_at = timing_of(wanted.spec, schedule_id).next_fire(now)
    values = (schedule_id, wanted.name, run, dict(wanted.spec), expected_at)
    edited = await _change(conn, _EDIT, values, act)
    await waiting_fires.call_all(conn, schedule_id)
    return _with_next(edited, now)


async def pause_schedule(
    conn: Connection, workspace_id: UUID, schedule_id: UUID, act: Act
) -> dict[str, object]:
    """Lets a schedule fire no more until it is resumed; a paused one stays so.

    Raises:
        NotFound: `schedule.not_found`.
    """
    row = await _hold(conn, workspace_id, schedule_id)
    now = await conn.fetchval(_NOW)
    if row["paused_at"] is not None:
        return _with_next(row, now)
    return _with_next(await _change(conn, _PAUSE, (schedule_id,), act), now)


async def resume_schedule(
    conn: Connection, workspace_id: UUID, schedule_id: UUID, act: Act
) -> dict[str, object]:
    """Lets a paused schedule fire again, from now on: what it would have done meanwhile is not made up for.

    Raises:
        NotFound: `schedule.not_found`.
    """
    row = await _hold(conn, workspace_id, schedule_id)
    now = await conn.fetchval(_NOW)
    if row["paused_at"] is None:
        return _with_next(row, now)
    expected_at = timing_of(row["spec"], schedule_id).next_fire(now)
    return _with_next(await _change(conn, _RESUME, (schedule_id, expected_at), act), now)


async def delete_schedule(
    conn: Connection, workspace_id: UUID, schedule_id: UUID, act: Act
) -> dict[str, object]:
    """Deletes a schedule; its runs go on and its ledger stays. What waits is told.

    Raises:
        NotFound: `schedule.not_found`, also when it was deleted before.
    """
    await _hold(conn, workspace_id, schedule_id)
    row = await conn.fetchrow(_DELETE, schedule_id)
    if row is None:
        raise NotFound("no such schedule", code="schedule.not_found")
    payload = ScheduleDeleted(schedule_id=schedule_id, name=row["name"], reason=act.clean_reason)
    deleted = envelope(
        EVENT_CATALOG.scan.schedule.deleted,
        payload,
        workspace_id=workspace_id,
        subject=names.schedule_subject(schedule_id),
        actor=act.actor,
    )
    await _tell(conn, row, deleted)
    await waiting_fires.call_all(conn, schedule_id)
    return _with_next(row, await conn.fetchval(_NOW))


async def list_schedules(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Schedules of a workspace that are not deleted, each with its coming fires."""
    statement = select(schedules).where(
        schedules.c.workspace_id == workspace_id, schedules.c.deleted_at.is_(None)
    )
    found = await fetch_page(conn, statement, ORDERS, page)
    now = (await conn.exec_driver_sql(_NOW)).scalar_one()
    return Page([_with_next(row, now) for row in found.items], found.next)


async def get_schedule(conn: Connection, workspace_id: UUID, schedule_id: UUID) -> dict[str, object]:
    """One schedule with its coming fires.

    Raises:
        NotFound: `schedule.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, schedule_id)
    if row is None:
        raise NotFound("no such schedule", code="schedule.not_found")
    return _with_next(row, await conn.fetchval(_NOW))


async def list_fires(conn: AsyncConnection, workspace_id: UUID, schedule_id: UUID, page: PageRequest) -> Page:
    """The ledger of a schedule, the newest fire first. Index: the primary key of `schedule_fires`."""
    statement = select(schedule_fires).where(
        schedule_fires.c.workspace_id == workspace_id, schedule_fires.c.schedule_id == schedule_id
    )
    return await fetch_page(conn, statement, FIRE_ORDERS, page)


async def plans_of(conn: Connection, schedule_ids: Sequence[UUID]) -> dict[UUID, Plan]:
    """Schedules as Temporal is to have them now, held until the end of the transaction.

    One that another relay holds is left out: told by two at once, the older state could win.
    """
    if not schedule_ids:
        return {}
    held = [row["id"] for row in await conn.fetch(_TRY, sorted(set(schedule_ids)))]
    plans = {schedule_id: Plan(schedule_id) for schedule_id in held}
    for row in await conn.fetch(_PLANS, held):  # a statement of its own: read once they are held
        plans[row["id"]] = Plan(row["id"], row["workspace_id"], row["spec"], row["is_paused"])
    return plans


async def _checked(conn: Connection, wanted: NewSchedule, now: datetime) -> dict[str, object]:
    """What a fire starts, as it is kept: groups by id, so that they may be renamed.

    Raises:
        Invalid: `schedule.invalid`, with every fault.
    """
    faults, run = spec_faults(wanted.spec, now), dict(wanted.run)
    definition, config, targets, groups, tags = (
        run[name] for name in ("definition", "config", "targets", "groups", "tags")
    )  # of their types: checked by the route
    try:
        found = await find_definition(conn, wanted.workspace_id, definition)  # type: ignore[arg-type]
        found.definition.with_config(config)  # type: ignore[arg-type]
    except Invalid as error:
        faults.update(error.fields or {"definition": error.detail})
    missing = await missing_targets(conn, wanted.workspace_id, [UUID(each) for each in targets])  # type: ignore[attr-defined]
    if missing:
        faults["targets"] = "not in this workspace: " + ", ".join(str(each) for each in missing[:5])
    if not (targets or groups or tags):
        faults["targets"] = "targets, groups or tags are required"
    try:
        run["groups"] = [str(each) for each in await keep_groups(conn, wanted.workspace_id, groups)]  # type: ignore[arg-type]
    except NotFound as error:
        faults["groups"] = error.detail
    if faults:
        raise Invalid("the schedule is not valid", code="schedule.invalid", fields=faults)
    return run


def _duplicate() -> Conflict:
    detail = "there is a schedule of that name"
    return Conflict(detail, code="schedule.duplicate", fields={"name": detail})


async def _hold(conn: Connection, workspace_id: UUID, schedule_id: UUID) -> Record:
    row = await conn.fetchrow(_HOLD, workspace_id, schedule_id)
    if row is None:
        raise NotFound("no such schedule", code="schedule.not_found")
    return row


async def _change(conn: Connection, how: _Change, values: tuple[object, ...], act: Act) -> Record:
    row = await conn.fetchrow(how.statement, *values)
    if row is None:  # it is held, so it is there
        raise NotFound("no such schedule", code="schedule.not_found")
    payload = ScheduleUpdated(
        schedule_id=row["id"], name=row["name"], change=how.word, reason=act.clean_reason
    )
    moment = await conn.fetchval(_NOW)
    updated = envelope(
        EVENT_CATALOG.scan.schedule.updated,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.schedule_subject(row["id"]),
        ordinal=f"{how.word}/{moment.isoformat()}",
        actor=act.actor,
    )
    await _tell(conn, row, updated)
    return row


async def _tell(conn: Connection, row: Record, event: Envelope) -> None:
    await write_schedule(conn, row["workspace_id"], row["id"])
    await outbox.insert(conn, [event])


def _with_next(row: Mapping[str, object] | Record, now: datetime) -> dict[str, object]:
    """A schedule's row with the nominal times at which it fires next: none while it is paused."""
    found = dict(row)
    is_live = found["paused_at"] is None and found["deleted_at"] is None
    spec, schedule_id = cast(Mapping[str, object], found["spec"]), cast(UUID, found["id"])  # by the table
    fires = timing_of(spec, schedule_id).fires(now, NEXT_FIRES) if is_live else []
    return {**found, "next_fires": fires}
