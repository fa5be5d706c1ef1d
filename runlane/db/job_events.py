"""Events of jobs that several causes have in common."""

from uuid import UUID

from runlane import names
from runlane.db.pool import Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobCreated


def created(job_id: UUID, run_id: UUID, like: Record, cause: str | None = None) -> Envelope:
    """A job was written, pending.

    `like` has what it is made of: `workspace_id`, `step_id`, `tool_id`, `category`, `target_id`, `asset_id`.
    """
    payload = JobCreated(
        job_id=job_id,
        run_id=run_id,
        step_id=like["step_id"],
        tool_id=like["tool_id"],
        attempt=0,
        category=like["category"],
        target_id=like["target_id"],
        asset_id=like["asset_id"],
    )
    return envelope(
        EVENT_CATALOG.job.created,
        payload,
        workspace_id=like["workspace_id"],
        subject=names.job_subject(job_id),
        cause=cause,
    )
