"""What the tests of notifications and of streams share."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from runlane import names
from runlane.db import notifications, outbox
from runlane.db.keys import NewKey, check_pepper, create_key
from runlane.db.pool import Pool, Record
from runlane.events import EVENT_CATALOG, BusEvent, Envelope, envelope, payloads
from runlane.settings import Settings
from tests.integration.event_bus import produce


def failed(workspace_id: UUID, run_id: UUID | None = None, error: str = "no") -> Envelope:
    """An event of medium severity."""
    job = uuid4()
    payload = payloads.JobFailed(
        job_id=job, run_id=run_id or job, step_id="ports", tool_id="portprobe", attempt=1,
        reason="fatal", error=error, failures=1,
    )  # fmt: skip
    subject = names.job_subject(job)
    return envelope(EVENT_CATALOG.job.failed, payload, workspace_id=workspace_id, subject=subject)


def cancelled(workspace_id: UUID, run_id: UUID) -> Envelope:
    """An event that the cancel of a run has set off; its severity is info."""
    job = uuid4()
    payload = payloads.JobCancelled(
        job_id=job, run_id=run_id, step_id="ports", tool_id="portprobe", attempt=0, reason=None
    )
    subject = names.job_subject(job)
    return envelope(
        EVENT_CATALOG.job.cancelled, payload, workspace_id=workspace_id, subject=subject, cause="run"
    )


async def add_key(
    pool: Pool, settings: Settings, workspace_id: UUID, name: str, scopes: Sequence[str] = ("*",)
) -> str:
    """Makes a key of this name."""
    pepper = check_pepper(settings.key_pepper.get_secret_value())
    async with pool.acquire() as conn, conn.transaction():
        return (await create_key(conn, NewKey(name, workspace_id, scopes), pepper)).plaintext


async def number(pool: Pool, events: Sequence[Envelope] = ()) -> None:
    """Writes events, and gives places on the bus to all that have none."""
    if events:
        await produce(pool, events)
    has_more = True
    while has_more:
        async with pool.acquire() as conn, conn.transaction():
            numbered = await outbox.sequence(conn, 1_000)
            has_more = numbered is None or bool(numbered.events)


async def tell(pool: Pool, events: Sequence[Envelope]) -> None:
    """Hands events to the sink's function, as one turn of the lane would."""
    async with pool.acquire() as conn, conn.transaction():
        now = await conn.fetchval("SELECT clock_timestamp()")
        await notifications.tell(conn, [BusEvent(event, at, now) for at, event in enumerate(events, 1)])


async def inbox(pool: Pool, recipient: str) -> list[Record]:
    """Notifications of a name, in the order in which they were written."""
    return await pool.fetch("SELECT * FROM notifications WHERE recipient = $1 ORDER BY id", recipient)
