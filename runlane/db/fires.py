"""Fires of schedules: each becomes one row of the ledger, and one run at most.

The key of the ledger is the schedule and the nominal time: a fire that is told of twice is decided once.
Whoever decides holds the schedule's row, then the rows of its open runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.cancel import cancel_run
from runlane.db.commands import CommandKind, write_fire
from runlane.db.definitions import find_definition
from runlane.db.pool import Connection, Record
from runlane.db.selections import Selection, selected
from runlane.db.starting import StartRun, start_run
from runlane.errors import NotFound, Refused
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import ScheduleFired, ScheduleMissed, ScheduleSkipped
from runlane.jobs import Priority
from runlane.schedules import LATE_S, FireOutcome, Overlap, Timing, Verdict, decide, timing_of

MISSED_AT_ONCE: Final = 200
"""Fires of one schedule that one sweep writes down; the next goes on behind them."""

TRIGGER: Final = "schedule"


@dataclass(frozen=True, slots=True)
class Fire:
    """A schedule at one nominal time, and the workflow that asks."""

    schedule_id: UUID
    due_at: datetime
    workflow_id: str
    asked_by: str | None = None
    """Who wants it now; None: the clock."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of a fire; `outcome` None: the schedule is gone."""

    outcome: FireOutcome | None
    run_id: UUID | None = None
    reason: str | None = None


_SCHEDULE: Final = """
SELECT s.* FROM schedules s JOIN workspaces w ON w.id = s.workspace_id
WHERE s.id = $1 AND ($2::uuid IS NULL OR s.workspace_id = $2)
  AND s.deleted_at IS NULL AND w.deleted_at IS NULL
FOR UPDATE OF s
"""

_ENTRY: Final = """
SELECT outcome, run_id, reason, asked_by FROM schedule_fires WHERE schedule_id = $1 AND due_at = $2
"""

_OPEN: Final = """
SELECT id FROM job_histories WHERE workspace_id = $1 AND schedule_id = $2 AND closed_at IS NULL
ORDER BY id FOR NO KEY UPDATE
"""

_WAITING: Final = """
SELECT count(*)::int FROM schedule_fires WHERE schedule_id = $1 AND outcome = 'buffered' AND due_at <> $2
"""

_RECORD: Final = """
INSERT INTO schedule_fires (schedule_id, workspace_id, due_at, outcome, reason, run_id, workflow_id, asked_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (schedule_id, due_at) DO UPDATE SET
  outcome = excluded.outcome, reason = excluded.reason, run_id = excluded.run_id,
  workflow_id = excluded.workflow_id, recorded_at = clock_timestamp()
RETURNING *
"""

_EXPECT: Final = "UPDATE schedules SET expected_at = $2 WHERE id = $1"

_DROP_WAITING: Final = """
UPDATE schedule_fires SET outcome = 'skipped', reason = 'the schedule was deleted'
WHERE schedule_id = $1 AND due_at = $2 AND outcome = 'buffered'
"""

_IS_LATE: Final = f"""
expected_at < clock_timestamp() - make_interval(
  secs => (spec ->> 'catch_up_s')::int + (spec ->> 'jitter_s')::int + {LATE_S})
"""

# The time of the statement, because no index is used for one that changes meanwhile.
_OVERDUE: Final = f"""
SELECT id FROM schedules
WHERE expected_at < statement_timestamp() - interval '{LATE_S} seconds' AND id > $1 AND {_IS_LATE}
ORDER BY id LIMIT $2
"""

_HOLD_OVERDUE: Final = f"""
SELECT *, clock_timestamp() - make_interval(
  secs => (spec ->> 'catch_up_s')::int + (spec ->> 'jitter_s')::int + {LATE_S}) AS bound
FROM schedules WHERE id = ANY($1::uuid[]) AND {_IS_LATE}
ORDER BY id FOR UPDATE
"""

_MISSED: Final = """
INSERT INTO schedule_fires (schedule_id, workspace_id, due_at, outcome, reason)
SELECT $1, $2, u.due_at, 'missed', $4 FROM unnest($3::timestamptz[]) u (due_at)
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at
"""

_TELL: Final = f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT s.workspace_id, '{CommandKind.SCHEDULE}', '{names.SCHEDULE_PREFIX}' || s.id
  FROM schedules s
  WHERE s.id = ANY($1::uuid[]) AND NOT EXISTS (
    SELECT FROM commands c WHERE c.done_at IS NULL AND c.kind = '{CommandKind.SCHEDULE}'
      AND c.workflow_id = '{names.SCHEDULE_PREFIX}' || s.id)
  RETURNING 1
)
SELECT pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

_NOT_TOLD: Final = "Temporal did not fire it: away for longer than the catch-up window, or paused there"


async def fire(conn: Connection, asked: Fire) -> Fired:
    """Decides a fire, writes it into the ledger, and starts its run, in one transaction of the caller.

    One that ran or was skipped is answered as it was; one that waits, or counted as missed, is decided now.
    """
    schedule = await conn.fetchrow(_SCHEDULE, asked.schedule_id, None)
    if schedule is None:
        await conn.execute(_DROP_WAITING, asked.schedule_id, asked.due_at)
        return Fired(None)
    entry = await conn.fetchrow(_ENTRY, asked.schedule_id, asked.due_at)
    if entry is not None and entry["outcome"] in {FireOutcome.RAN, FireOutcome.SKIPPED}:
        return Fired(FireOutcome(entry["outcome"]), entry["run_id"], entry["reason"])
    timing = timing_of(schedule["spec"], asked.schedule_id)
    if entry is not None:
        asked = replace(asked, asked_by=entry["asked_by"])
    fired = await _decide(conn, schedule, timing, asked)
    await _record(conn, schedule, asked, fired)
    if (
        asked.due_at == schedule["expected_at"]
    ):  # one before it may still come: else the sweep goes on from there
        await conn.execute(_EXPECT, asked.schedule_id, timing.next_fire(asked.due_at))
    return fired


async def fire_now(conn: Connection, workspace_id: UUID, schedule_id: UUID, act: Act) -> dict[str, object]:
    """Fires a schedule because a person says so, also a paused one; answers its row of the ledger.

    What becomes of it while a run of the schedule is open is what the schedule says. One that has to wait is
    given a workflow by command, as Temporal gives one to every other. A repeated call is a fire of its own:
    requests are told apart by their keys.

    Raises:
        NotFound: `schedule.not_found`.
    """
    schedule = await conn.fetchrow(_SCHEDULE, schedule_id, workspace_id)
    if schedule is None:
        raise NotFound("no such schedule", code="schedule.not_found")
    due_at = await conn.fetchval("SELECT clock_timestamp()")
    workflow_id = f"{names.fire_workflow_id(schedule_id)}-{due_at.isoformat()}"
    asked = Fire(schedule_id, due_at, workflow_id, act.name or "somebody")
    fired = await _decide(conn, schedule, timing_of(schedule["spec"], schedule_id), asked)
    row = await _record(conn, schedule, asked, fired)
    if fired.outcome is FireOutcome.BUFFERED:
        await write_fire(conn, workspace_id, workflow_id, {"schedule": schedule_id, "due_at": due_at})
    deed = Deed(
        Action.SCHEDULE_RUN,
        workspace_id,
        names.schedule_subject(schedule_id),
        ordinal=due_at.isoformat(),
        run_id=fired.run_id,
        value=fired.outcome,
    )
    await outbox.insert(conn, [acted(act, deed)])
    return row


async def find_overdue(conn: Connection, after: UUID, limit: int) -> list[UUID]:
    """Schedules with a fire that can happen no more and is not in the ledger. Index: `schedules_expected`."""
    return [row["id"] for row in await conn.fetch(_OVERDUE, after, limit)]


async def note_missed(conn: Connection, schedule_ids: Sequence[UUID]) -> list[UUID]:
    """Writes fires that were missed into the ledger, and has Temporal told of their schedules again.

    Harmless to repeat: what is in the ledger stays, and what is expected moves on.
    """
    events, told = [], []
    for schedule in await conn.fetch(_HOLD_OVERDUE, schedule_ids):
        timing, due_at = timing_of(schedule["spec"], schedule["id"]), schedule["expected_at"]
        past: list[datetime] = []
        while due_at is not None and due_at < schedule["bound"] and len(past) < MISSED_AT_ONCE:
            if not timing.is_repeated(due_at):
                past.append(due_at)
            due_at = timing.next_fire(due_at)
        rows = await conn.fetch(_MISSED, schedule["id"], schedule["workspace_id"], past, _NOT_TOLD)
        await conn.execute(_EXPECT, schedule["id"], due_at)
        if missed := sorted(row["due_at"] for row in rows):
            events.append(_missed_event(schedule, missed))
            told.append(schedule["id"])
    await conn.execute(_TELL, told)
    await outbox.insert(conn, events)
    return list(schedule_ids)


async def _decide(conn: Connection, schedule: Record, timing: Timing, asked: Fire) -> Fired:
    open_runs = [row["id"] for row in await conn.fetch(_OPEN, schedule["workspace_id"], asked.schedule_id)]
    verdict = decide(
        timing.overlap,
        is_paused=schedule["paused_at"] is not None and asked.asked_by is None,
        open_runs=len(open_runs),
        waiting=await conn.fetchval(_WAITING, asked.schedule_id, asked.due_at),
    )
    if verdict.outcome is not FireOutcome.RAN:
        return _fired(verdict)
    others = open_runs if timing.overlap is Overlap.CANCEL_OTHER else []
    try:
        async with conn.transaction():  # a start that is refused cancels nothing
            return Fired(FireOutcome.RAN, await _start(conn, schedule, asked, others))
    except Refused as error:
        return Fired(FireOutcome.SKIPPED, reason=f"{error.code}: {error.detail}"[:500])


def _fired(verdict: Verdict) -> Fired:
    return Fired(verdict.outcome, reason=verdict.reason)


async def _start(conn: Connection, schedule: Record, asked: Fire, others: Sequence[UUID]) -> UUID:
    """Starts the run of a fire over what its selection says now."""
    run, workspace_id = schedule["run"], schedule["workspace_id"]
    for run_id in others:
        await cancel_run(conn, workspace_id, run_id, Act(reason="the next fire of its schedule"))
    selection = Selection(
        [UUID(each) for each in run["targets"]], [UUID(each) for each in run["groups"]], run["tags"]
    )
    found = await find_definition(conn, workspace_id, run["definition"])
    start = StartRun(
        workspace_id=workspace_id,
        definition=found.definition.with_config(run["config"]),
        target_ids=(),
        source=selected(selection),
        name=schedule["name"],
        priority=Priority(run["priority"]),
        created_by=asked.asked_by or schedule["created_by"],
        trigger=TRIGGER,
        schedule_id=schedule["id"],
        definition_id=found.definition_id,
        definition_version=found.version,
    )
    return (await start_run(conn, start)).run_id


async def _record(conn: Connection, schedule: Record, asked: Fire, fired: Fired) -> dict[str, object]:
    (row,) = await conn.fetch(
        _RECORD,
        asked.schedule_id,
        schedule["workspace_id"],
        asked.due_at,
        fired.outcome,
        fired.reason,
        fired.run_id,
        asked.workflow_id,
        asked.asked_by,
    )
    if (event := _event(schedule, asked, fired)) is not None:
        await outbox.insert(conn, [event])
    return dict(row)


def _event(schedule: Record, asked: Fire, fired: Fired) -> Envelope | None:
    schedule_id, name, due_at = schedule["id"], schedule["name"], asked.due_at.isoformat()
    workspace_id, subject = schedule["workspace_id"], names.schedule_subject(schedule["id"])
    if fired.run_id is not None:
        return envelope(
            EVENT_CATALOG.scan.schedule.fired,
            ScheduleFired(schedule_id=schedule_id, name=name, due_at=due_at, run_id=fired.run_id),
            workspace_id=workspace_id,
            subject=subject,
            ordinal=due_at,
        )
    if fired.outcome is FireOutcome.SKIPPED:
        return envelope(
            EVENT_CATALOG.scan.schedule.skipped,
            ScheduleSkipped(schedule_id=schedule_id, name=name, due_at=due_at, reason=fired.reason or ""),
            workspace_id=workspace_id,
            subject=subject,
            ordinal=due_at,
        )
    return None


def _missed_event(schedule: Record, missed: Sequence[datetime]) -> Envelope:
    first, last = missed[0].isoformat(), missed[-1].isoformat()
    payload = ScheduleMissed(
        schedule_id=schedule["id"],
        name=schedule["name"],
        fires=len(missed),
        first_due_at=first,
        last_due_at=last,
    )
    return envelope(
        EVENT_CATALOG.scan.schedule.missed,
        payload,
        workspace_id=schedule["workspace_id"],
        subject=names.schedule_subject(schedule["id"]),
        ordinal=first,
    )
