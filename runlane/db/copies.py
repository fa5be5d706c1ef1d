"""Copies of jobs: what is done once more is a new row about the same thing; the old row stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection


@dataclass(frozen=True, slots=True)
class Copying:
    """Where copies go, and what they take over. Values that are None are those of the job that is copied."""

    into: UUID
    """The run: that of the job, or one of its own."""
    cause: str
    priority: int | None = None
    generation: int | None = None
    """In the job's own run; None: the one after the job's."""
    is_budget_kept: bool = False
    """What was charged counts against the copy."""


# A target may have been moved since: its jobs are for the workers of where it is now.
# A generation that is there already is a re-run that somebody else has asked for: one is enough.
_COPY: Final = """
INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, target_id, asset_id, service_id,
                  network_id, own_only, subject_id, ordinal, spec, priority, generation, failures_before,
                  retry_of, cause)
SELECT j.workspace_id, $2, step_id, tool_id, toolset, category, target_id, asset_id, service_id,
       CASE WHEN t.id IS NULL THEN j.network_id ELSE t.network_id END,
       own_only, subject_id, ordinal, spec, coalesce($4, priority),
       CASE WHEN run_id = $2 THEN coalesce($5, generation + 1) ELSE 0 END,
       CASE WHEN $6 THEN failures_before + failures ELSE 0 END, j.id, $3
FROM jobs j LEFT JOIN targets t ON t.id = j.target_id AND t.deleted_at IS NULL
WHERE j.id = ANY($1::uuid[])
ON CONFLICT (run_id, step_id, subject_id, ordinal, generation) DO NOTHING
RETURNING id, retry_of
"""


async def copy_jobs(conn: Connection, job_ids: Sequence[UUID], how: Copying) -> dict[UUID, UUID]:
    """Copies jobs of one step into a run that has it; answers the copy of each.

    A job is missing in the answer if it is gone, or has that generation already.
    """
    rows = await conn.fetch(
        _COPY, list(job_ids), how.into, how.cause, how.priority, how.generation, how.is_budget_kept
    )
    return {row["retry_of"]: row["id"] for row in rows}
