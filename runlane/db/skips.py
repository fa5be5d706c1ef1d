"""The event of a job that was skipped."""

from uuid import UUID

from runlane import names
from runlane.db.pool import Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobSkipped


def skipped(row: Record, run_id: UUID, reason: str) -> Envelope:
    """The event of one skipped job, whose row names its id, workspace, step, tool and attempt."""
    return envelope(
        EVENT_CATALOG.job.skipped,
        JobSkipped(
            job_id=row["id"],
            run_id=run_id,
            step_id=row["step_id"],
            tool_id=row["tool_id"],
            attempt=row["attempt"],
            reason=reason,
        ),
        workspace_id=row["workspace_id"],
        subject=names.job_subject(row["id"]),
    )
