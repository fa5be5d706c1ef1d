"""The activity of a schedule's fire: one short transaction that decides it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from temporalio import activity

from activities.failures import translated
from runlane.db import fires
from runlane.db.pool import Pool


@dataclass
class FireRequest:
    """A schedule at one nominal time, and the workflow that asks."""

    schedule_id: str
    due_at: datetime
    workflow_id: str


@dataclass
class FireAnswer:
    """What became of it. `outcome` empty: the schedule is gone."""

    outcome: str = ""
    run_id: str = ""
    reason: str = ""


class FireActivities:
    """Activities of fires; the core worker has them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @activity.defn
    async def decide_fire(self, request: FireRequest) -> FireAnswer:
        """Decides a fire. Harmless to repeat: the ledger has one row for it, and that one is answered."""
        asked = fires.Fire(UUID(request.schedule_id), request.due_at, request.workflow_id)
        async with translated(), self._pool.acquire() as conn, conn.transaction():
            fired = await fires.fire(conn, asked)
        run_id = str(fired.run_id) if fired.run_id is not None else ""
        return FireAnswer(str(fired.outcome or ""), run_id, fired.reason or "")
