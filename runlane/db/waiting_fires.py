"""Calls fires of schedules that wait for the end of a run: in the transaction of that end, as commands."""

from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.commands import CommandKind
from runlane.db.pool import Connection


def _call(which: str) -> str:
    return f"""
WITH written AS (
  INSERT INTO commands (workspace_id, kind, workflow_id)
  SELECT f.workspace_id, '{CommandKind.NUDGE}', f.workflow_id
  FROM schedule_fires f
  WHERE f.outcome = 'buffered' AND f.workflow_id IS NOT NULL AND f.schedule_id = {which}
  RETURNING 1
)
SELECT pg_notify('{names.COMMANDS_CHANNEL}', '') FROM written
"""


_AFTER_RUN: Final = _call("(SELECT schedule_id FROM job_histories WHERE id = $1)")
_OF_SCHEDULE: Final = _call("$1")


async def call_after(conn: Connection, run_id: UUID) -> None:
    """Calls what waits for the end of this run, which the caller has just closed.

    The caller holds the run's row, and so does a fire that is being decided while it is open: no wait is
    written unseen.
    Index: `schedule_fires_waiting`.
    """
    await conn.execute(_AFTER_RUN, run_id)


async def call_all(conn: Connection, schedule_id: UUID) -> None:
    """Calls all fires of a schedule that wait, so that they look at its row."""
    await conn.execute(_OF_SCHEDULE, schedule_id)
