"""Commands: what rows have decided and Temporal is to be told, until somebody has told it.

A command is written in the transaction of what it tells of. Telling it twice is harmless: a start finds the
running workflow, a nudge is only a reason to look, a schedule is told as its row is by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.pool import Connection, Record


class CommandKind(StrEnum):
    """What Temporal is told, as in `commands.kind`."""

    START_RUN = "start_run"
    NUDGE = "nudge"
    SCHEDULE = "schedule"
    FIRE = "fire"
    """A fire that a person wanted and that waits: it needs a workflow."""
    DELIVER = "deliver"
    """Something is due at an endpoint outside of the platform."""
    TRIGGER = "trigger"
    """Not of Temporal: events that were gathered start runs, which then have commands of their own."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The run whose workflow is to be started."""

    run_id: UUID
    workspace_id: UUID
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command that is due."""

    command_id: int
    kind: CommandKind
    workflow_id: str
    run: OpenRun | None
    """Of a start; None when the run is closed or gone by now, so that there is nothing to start."""
    schedule_id: UUID | None = None
    """The schedule that Temporal is to have as its row says; None of any other kind."""
    payload: Mapping[str, object] = field(default_factory=dict)


_WRITE_START: Final = f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id, due_at)
  VALUES ($1, '{CommandKind.START_RUN}', $2, clock_timestamp() + make_interval(secs => $3))
  RETURNING id
)
SELECT id, pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

_WRITE_SCHEDULE: Final = f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id) VALUES ($1, '{CommandKind.SCHEDULE}', $2)
  RETURNING id
)
SELECT id, pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

_WRITE_FIRE: Final = f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id, payload) VALUES ($1, '{CommandKind.FIRE}', $2, $3)
  RETURNING id
)
SELECT id, pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""

# A kind that this program does not know is left to one that does.
_TAKE: Final = f"""
SELECT c.id, c.kind, c.workflow_id, c.payload, h.id AS run_id, h.workspace_id, h.name, h.kind AS run_kind
FROM commands c
LEFT JOIN job_histories h ON c.kind = '{CommandKind.START_RUN}' AND h.workspace_id = c.workspace_id
  AND '{names.RUN_PREFIX}' || h.id = c.workflow_id AND h.id = split_part(c.workflow_id, '/', 2)::uuid
  AND h.closed_at IS NULL
WHERE c.done_at IS NULL AND c.due_at <= clock_timestamp()
  AND c.kind = ANY($2::text[])
ORDER BY c.due_at, c.id
LIMIT $1
FOR UPDATE OF c SKIP LOCKED
"""

_DONE: Final = """
UPDATE commands SET done_at = clock_timestamp(), error = NULL, request_id = NULL WHERE id = ANY($1::bigint[])
"""

_AGAIN: Final = """
UPDATE commands
SET tries = tries + 1, error = u.error,
    due_at = clock_timestamp() + make_interval(secs => least($3, 0.5 * 2 ^ least(tries, 10)))
FROM unnest($1::bigint[], $2::text[]) AS u (id, error)
WHERE commands.id = u.id
"""

_STARTED: Final = f"""
UPDATE commands SET done_at = clock_timestamp()
WHERE kind = '{CommandKind.START_RUN}' AND workflow_id = $1 AND done_at IS NULL
"""


async def write_start(conn: Connection, workspace_id: UUID, run_id: UUID, *, delay_s: float = 0.0) -> int:
    """Writes the command that starts (or starts again) a run's workflow; returns the command's id."""
    return int(await conn.fetchval(_WRITE_START, workspace_id, names.run_workflow_id(run_id), delay_s))


async def write_schedule(conn: Connection, workspace_id: UUID, schedule_id: UUID) -> int:
    """Writes the command to let Temporal have a schedule as its row says; returns the command's id."""
    return int(await conn.fetchval(_WRITE_SCHEDULE, workspace_id, names.schedule_id(schedule_id)))


async def write_fire(
    conn: Connection, workspace_id: UUID, workflow_id: str, payload: Mapping[str, object]
) -> int:
    """Writes the command to start the workflow of a fire that waits; returns the command's id."""
    return int(await conn.fetchval(_WRITE_FIRE, workspace_id, workflow_id, payload))


async def take(conn: Connection, limit: int, kinds: Sequence[CommandKind]) -> list[Command]:
    """Locks up to `limit` due commands of these kinds for the transaction, passing over what others hold.

    Whoever takes them marks each with `mark_done` or `put_off`; one that dies leaves them to the next.
    """
    return [_command(row) for row in await conn.fetch(_TAKE, limit, kinds)]


async def mark_done(conn: Connection, command_ids: Sequence[int]) -> None:
    """Notes that Temporal was told."""
    if command_ids:
        await conn.execute(_DONE, command_ids)


async def put_off(conn: Connection, errors: Mapping[int, str], most_s: float) -> None:
    """Makes commands due again after half a second, doubled each time up to `most_s`; keeps their errors."""
    if errors:
        await conn.execute(_AGAIN, list(errors), list(errors.values()), most_s)


async def mark_started(conn: Connection, run_id: UUID) -> None:
    """Notes that a run's workflow has been started without a relay; harmless when one was faster."""
    await conn.execute(_STARTED, names.run_workflow_id(run_id))


def _command(row: Record) -> Command:
    run = None
    if row["run_id"] is not None:
        run = OpenRun(row["run_id"], row["workspace_id"], row["name"], row["run_kind"])
    kind, workflow_id = CommandKind(row["kind"]), row["workflow_id"]
    schedule_id = names.schedule_of(workflow_id) if kind is CommandKind.SCHEDULE else None
    return Command(row["id"], kind, workflow_id, run, schedule_id, row["payload"])
