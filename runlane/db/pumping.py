"""How what is due is taken by whoever sends it, and what is written about it afterwards.

An attempt is counted when it is taken, and the row is due again a minute later: if the sender dies, the next
one sends it once more. Both writes hold the endpoint's row, so that its health and its deliveries are of one
mind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypedDict
from uuid import UUID

from runlane import names
from runlane.db import integration_secrets, outbox
from runlane.db.integration_secrets import Opened, Place
from runlane.db.integrations import SKIP
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.delivery_payloads import (
    IntegrationDeliveryFailed,
    IntegrationFailed,
    IntegrationPayload,
    IntegrationTicket,
)
from runlane.integrations import (
    BREAKS_AFTER,
    TEST,
    Answer,
    DeliveryState,
    Kind,
    Tried,
    break_of,
    is_given_up,
    next_pause,
    patience,
)
from runlane.keyring import Keyring

LEASE: Final = timedelta(seconds=60)
"""Longer than an attempt can last: see `runlane.outbound`."""

AT_ONCE: Final = 8
"""Deliveries to one endpoint that does not ask for their order."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery to be sent now."""

    delivery_id: UUID
    event_id: UUID
    type: str
    subject: str
    sequence: int
    body: Mapping[str, object]
    events: int
    attempt: int
    refusals: int
    has_ticket: bool


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent to one endpoint at once. `at`: the time of the attempts, by the database's clock."""

    place: Place
    kind: Kind
    config: Mapping[str, object]
    opened: Opened
    at: datetime
    deliveries: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class Attempted:
    """How an attempt went. `chance`: from 0 to 1, for the jitter of the next one."""

    taken: Taken
    answer: Answer
    duration_ms: int
    status: int | None = None
    excerpt: str | None = None
    error: str | None = None
    ticket: str | None = None
    retry_after_s: float | None = None
    chance: float = 0.5

    @property
    def refusals(self) -> int:
        """Attempts at this delivery that were refused, with this one."""
        return self.taken.refusals + (self.answer is Answer.REFUSED)

    @property
    def pause(self) -> timedelta | None:
        """How long until the next attempt; None: there is none."""
        is_test = self.taken.type == TEST
        tried = Tried(self.answer, self.taken.attempt, self.refusals, self.retry_after_s, is_test)
        return next_pause(tried, self.chance)

    @property
    def state(self) -> DeliveryState:
        """What becomes of the delivery."""
        if self.answer is Answer.ACCEPTED:
            return DeliveryState.DELIVERED
        return DeliveryState.FAILED if self.pause is None else DeliveryState.PENDING


_BEGIN: Final = """
UPDATE integrations SET called_for = NULL WHERE id = $1
RETURNING workspace_id, kind, config, is_ordered, failures, clock_timestamp() AS now,
  is_probing OR failures >= $2 AS is_half_open,
  status = 'active' AND deleted_at IS NULL AND coalesce(paused_until < clock_timestamp(), true) AS is_open
"""

_TAKE: Final = """
UPDATE deliveries d SET attempts = attempts + 1, due_at = clock_timestamp() + $3::interval
FROM ({chosen}) AS c
WHERE d.id = c.id
RETURNING d.id, d.event_id, d.type, d.subject, d.sequence, d.body, d.events, d.attempts, d.refusals,
  d.ticket IS NOT NULL AS has_ticket
"""

_TAKE_ANY: Final = _TAKE.format(
    chosen="""
  SELECT id FROM deliveries WHERE integration_id = $1 AND state = 'pending' AND due_at <= clock_timestamp()
  ORDER BY due_at LIMIT $2 FOR NO KEY UPDATE"""
)

_TAKE_FIRST: Final = _TAKE.format(
    chosen="""
  SELECT id FROM (
    SELECT id, due_at FROM deliveries WHERE integration_id = $1 AND state = 'pending'
    ORDER BY sequence, id LIMIT $2) AS first
  WHERE first.due_at <= clock_timestamp()"""
)

_SETTLE: Final = """
UPDATE deliveries d
SET state = u.state, refusals = u.refusals, status = u.status, error = u.error, duration_ms = u.duration_ms,
    ticket = coalesce(u.ticket, d.ticket),
    due_at = CASE WHEN u.state = 'pending' THEN clock_timestamp() + u.pause ELSE d.due_at END,
    ended_at = CASE WHEN u.state <> 'pending' THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::int[], $6::text[], $7::int[], $8::text[],
            $9::interval[])
  AS u (id, attempt, state, refusals, status, error, duration_ms, ticket, pause)
WHERE d.id = u.id AND d.attempts = u.attempt AND d.state = 'pending'
RETURNING d.id
"""

_NOTE: Final = """
INSERT INTO delivery_attempts
  (workspace_id, delivery_id, attempt, answer, status, excerpt, error, duration_ms)
SELECT d.workspace_id, d.id, u.attempt, u.answer, u.status, u.excerpt, u.error, u.duration_ms
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::text[], $6::text[], $7::int[])
  AS u (id, attempt, answer, status, excerpt, error, duration_ms)
JOIN deliveries d ON d.id = u.id
ON CONFLICT DO NOTHING
"""

_HOLD: Final = """
SELECT id, workspace_id, kind, name, status, failures, failing_since, is_probing, deleted_at,
  clock_timestamp() AS now
FROM integrations WHERE id = $1 FOR NO KEY UPDATE
"""

_WELL: Final = """
UPDATE integrations
SET failures = 0, failing_since = NULL, paused_until = NULL, is_probing = false,
    delivered_at = clock_timestamp()
WHERE id = $1
"""

_UNWELL: Final = """
UPDATE integrations
SET failures = failures + $2, failing_since = coalesce(failing_since, clock_timestamp()),
    paused_until = greatest(paused_until, clock_timestamp() + nullif($3, interval '0'))
WHERE id = $1
"""

_DISABLE: Final = """
UPDATE integrations SET status = 'disabled', disabled_reason = $2, version = version + 1
WHERE id = $1 AND status = 'active'
RETURNING version
"""


async def take(conn: Connection, integration_id: UUID, keyring: Keyring) -> Load | None:
    """Takes what is due at an endpoint, in a transaction of its own; None: nothing is to be sent now.

    One at a time where order counts, and where the endpoint has not been well.

    Raises:
        Unavailable: `secret.no_key`.
        Defect: `secret.broken`.
    """
    endpoint = await conn.fetchrow(_BEGIN, integration_id, BREAKS_AFTER)
    if endpoint is None or not endpoint["is_open"]:
        return None
    limit = 1 if endpoint["is_ordered"] or endpoint["is_half_open"] else AT_ONCE
    statement = _TAKE_FIRST if endpoint["is_ordered"] else _TAKE_ANY
    rows = await conn.fetch(statement, integration_id, limit, LEASE)
    if not rows:
        return None
    place = Place(endpoint["workspace_id"], integration_id)
    opened = await integration_secrets.open_secrets(conn, place, keyring)
    taken = tuple(Taken(*row.values()) for row in rows)
    return Load(place, Kind(endpoint["kind"]), endpoint["config"], opened, endpoint["now"], taken)


async def settle(conn: Connection, place: Place, attempts: Sequence[Attempted]) -> None:
    """Writes how attempts at one endpoint went, in a transaction of its own.

    A delivery that was skipped meanwhile stays so, and its attempt is noted all the same. A second call
    changes nothing of what is written.
    """
    endpoint = await conn.fetchrow(_HOLD, place.integration_id)
    if endpoint is None:
        return
    ids, numbers = [a.taken.delivery_id for a in attempts], [a.taken.attempt for a in attempts]
    statuses, errors = [a.status for a in attempts], [a.error for a in attempts]
    durations = [a.duration_ms for a in attempts]
    rows = await conn.fetch(
        _SETTLE, ids, numbers, [a.state for a in attempts], [a.refusals for a in attempts], statuses, errors,
        durations, [a.ticket for a in attempts], [a.pause for a in attempts],
    )  # fmt: skip
    answers, excerpts = [a.answer for a in attempts], [a.excerpt for a in attempts]
    await conn.execute(_NOTE, ids, numbers, answers, statuses, excerpts, errors, durations)
    settled = {row["id"] for row in rows}
    known = [each for each in attempts if each.taken.delivery_id in settled]
    told = [event for each in known for event in _events(endpoint, each)]
    if known:
        told += await _look_after(conn, endpoint, known)
    await outbox.insert(conn, told)


async def _look_after(conn: Connection, endpoint: Record, attempts: Sequence[Attempted]) -> list[Envelope]:
    """Notes how the endpoint is, and switches off what is gone or has failed for days."""
    if any(each.answer is Answer.GONE for each in attempts):
        return await _disable(conn, endpoint, "gone", "it says that it is not there any more")
    if any(each.answer is Answer.ACCEPTED for each in attempts):
        await conn.execute(_WELL, endpoint["id"])
        return [_recovered(endpoint)] if endpoint["is_probing"] else []
    is_troubled = any(each.answer is Answer.TROUBLED for each in attempts)
    pause = break_of(endpoint["failures"] + len(attempts)) if is_troubled else timedelta(0)
    pause = max(pause, *(patience(each.retry_after_s) for each in attempts))
    await conn.execute(_UNWELL, endpoint["id"], len(attempts), pause)
    if is_given_up(endpoint["failing_since"] or endpoint["now"], endpoint["now"]):
        return await _disable(conn, endpoint, "failing", "it has only failed for days")
    return []


async def _disable(conn: Connection, endpoint: Record, reason: str, error: str) -> list[Envelope]:
    version = await conn.fetchval(_DISABLE, endpoint["id"], reason)
    if version is None:
        return []
    await conn.execute(SKIP, endpoint["id"], "the integration was disabled")
    payload = IntegrationFailed(**_said(endpoint), error=error)
    leaf = EVENT_CATALOG.integration.endpoint.disabled
    return [envelope(leaf, payload, ordinal=version, **_about(endpoint))]


def _recovered(endpoint: Record) -> Envelope:
    leaf = EVENT_CATALOG.integration.endpoint.recovered
    ordinal = endpoint["now"].isoformat()
    return envelope(leaf, IntegrationPayload(**_said(endpoint)), ordinal=ordinal, **_about(endpoint))


def _events(endpoint: Record, attempted: Attempted) -> list[Envelope]:
    taken = attempted.taken
    if attempted.state is DeliveryState.FAILED and taken.type != TEST:
        failed = IntegrationDeliveryFailed(
            **_said(endpoint), error=attempted.error, delivery_id=taken.delivery_id, cause=taken.type
        )
        leaf = EVENT_CATALOG.integration.delivery.failed
        return [envelope(leaf, failed, ordinal=str(taken.delivery_id), **_about(endpoint))]
    if attempted.ticket is not None and not taken.has_ticket:
        kind, _, subject_id = taken.subject.partition("/")
        finding = UUID(subject_id) if kind == "vulnerability" else None
        ticket = IntegrationTicket(
            **_said(endpoint), reference=attempted.ticket[:200], vulnerability_id=finding
        )
        created = EVENT_CATALOG.integration.ticket.created
        return [envelope(created, ticket, ordinal=str(taken.delivery_id), **_about(endpoint))]
    return []


class _Said(TypedDict):
    integration_id: UUID
    kind: str
    name: str


class _About(TypedDict):
    workspace_id: UUID
    subject: str


def _said(endpoint: Record) -> _Said:
    return {"integration_id": endpoint["id"], "kind": endpoint["kind"], "name": endpoint["name"]}


def _about(endpoint: Record) -> _About:
    return {
        "workspace_id": endpoint["workspace_id"],
        "subject": names.integration_subject(endpoint["id"]),
    }
