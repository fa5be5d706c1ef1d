"""Endpoints of a workspace, and the parts that tell them, one at a time or all together."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid4

from temporalio.testing import ActivityEnvironment

from activities.deliveries import DeliveryActivities, DeliveryTurn, Outbound
from lanes.integrations import IntegrationsSink
from runlane import names
from runlane.db import integrations
from runlane.db.acts import Act
from runlane.db.integration_secrets import Place
from runlane.db.integrations import NewIntegration
from runlane.db.pool import Pool
from runlane.events import EVENT_CATALOG, BusEvent, Envelope, Severity, envelope
from runlane.events.payloads import JobCancelled, VulnerabilityDetected
from runlane.integrations import Kind
from runlane.keyring import Keyring
from runlane.outbound.signing import new_key
from runlane.outbound.transports import transports
from runlane.settings import Settings
from tests.receivers import LOOPBACK, sender


def cancelled(workspace_id: UUID, run_id: UUID | None = None, cause: str | None = None) -> Envelope:
    """An event that endpoints may ask for."""
    job_id = uuid4()
    payload = JobCancelled(
        job_id=job_id, run_id=run_id or uuid4(), step_id="ports", tool_id="portprobe", attempt=0, reason=None
    )
    return envelope(
        EVENT_CATALOG.job.cancelled,
        payload,
        workspace_id=workspace_id,
        subject=names.job_subject(job_id),
        cause=cause,
    )


def detected(workspace_id: UUID) -> Envelope:
    """A new finding."""
    finding_id = uuid4()
    payload = VulnerabilityDetected(
        vulnerability_id=finding_id, asset_id=uuid4(), check_id="git-exposed",
        severity="high", url=None,
    )  # fmt: skip
    subject = names.vulnerability_subject(finding_id)
    return envelope(EVENT_CATALOG.vulnerability.detected, payload, workspace_id=workspace_id, subject=subject)


@dataclass(slots=True)
class DeliveryWorld:
    """What endpoints get, and what becomes of it."""

    pool: Pool
    workspace_id: UUID
    keyring: Keyring
    activities: DeliveryActivities
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def connect(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        least: Severity = Severity.INFO,
        is_ordered: bool = False,
        workspace_id: UUID | None = None,
    ) -> UUID:
        """Connects a webhook; returns its id."""
        wanted = NewIntegration(
            workspace_id or self.workspace_id, Kind.WEBHOOK, f"hook {uuid4()}", {"url": url},
            events=events, least_severity=least, is_ordered=is_ordered, signing_key=new_key(),
        )  # fmt: skip
        async with self.pool.acquire() as conn, conn.transaction():
            row = await integrations.connect(conn, wanted, self.keyring, Act())
        return UUID(str(row["id"]))

    async def hear(self, *events: Envelope) -> None:
        """What the lane does in one turn."""
        now = datetime.now(UTC)
        async with self.pool.acquire() as conn, conn.transaction():
            heard = [BusEvent(event, next(self.numbers), now) for event in events]
            await IntegrationsSink().handle(conn, heard)

    async def deliver(self, integration_id: UUID) -> int:
        """What the workflow has done in one turn; answers the number of attempts."""
        turn = DeliveryTurn(str(integration_id))
        answer = await ActivityEnvironment().run(self.activities.deliver, turn)
        return int(answer.attempts)

    async def let_time_pass(self, integration_id: UUID) -> None:
        """Makes what waits due now, and ends what an endpoint is left alone for."""
        await self.pool.execute(
            """UPDATE deliveries SET due_at = clock_timestamp()
               WHERE integration_id = $1 AND state = 'pending'""",
            integration_id,
        )
        await self.pool.execute("UPDATE integrations SET paused_until = NULL WHERE id = $1", integration_id)

    async def states(self, integration_id: UUID) -> list[str]:
        """`state/attempts/status` of the deliveries of an endpoint, in their order."""
        rows = await self.pool.fetch(
            """SELECT state || '/' || attempts || '/' || coalesce(status::text, '-') AS shown FROM deliveries
               WHERE integration_id = $1 ORDER BY sequence, id""",
            integration_id,
        )
        return [row["shown"] for row in rows]

    async def endpoint(self, integration_id: UUID) -> dict[str, object]:
        """The row of an endpoint."""
        row = await self.pool.fetchrow("SELECT * FROM integrations WHERE id = $1", integration_id)
        assert row is not None
        return dict(row)

    async def told(self, prefix: str = "integration.") -> list[str]:
        """Types of events that were published, in their order."""
        rows = await self.pool.fetch("SELECT type FROM outbox WHERE type LIKE $1 || '%' ORDER BY id", prefix)
        return [row["type"] for row in rows]

    def place(self, integration_id: UUID) -> Place:
        """Whose it is."""
        return Place(self.workspace_id, integration_id)


@asynccontextmanager
async def delivery_world(settings: Settings, pool: Pool, workspace_id: UUID) -> AsyncIterator[DeliveryWorld]:
    """Deliveries to receivers on loopback."""
    keyring = Keyring.of(settings.secret_key_texts)
    async with sender() as (client, _):
        outbound = Outbound(client, transports(LOOPBACK), keyring, chance=lambda: 0.5)
        yield DeliveryWorld(pool, workspace_id, keyring, DeliveryActivities(pool, outbound))
