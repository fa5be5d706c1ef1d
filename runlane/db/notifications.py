"""Notifications as rows: one for each recipient and event, or for each recipient and digest.

The lane alone writes them, under the lock of its turn. Readers see those of their own name.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.notification_rules import audiences
from runlane.db.pool import Connection, Record, encode_json
from runlane.db.selections import in_group
from runlane.events import EVENT_CATALOG, BusEvent, Envelope, Severity, envelope
from runlane.events.delivery_payloads import NotificationPayload
from runlane.notifications import (
    FIRST_IDS,
    IDLE,
    IDLE_OF_ACT,
    LEVELS,
    LONGEST,
    MINUTE,
    MOST_ALONE,
    About,
    Audience,
    cause_of,
    count_alone,
    digest_key,
    is_echo,
    loudness,
    recipients_of,
)

_TARGETS: Final = """
SELECT u.ordinal, coalesce(a.target_id, j.target_id) AS target_id
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS u (workspace_id, asset_id, job_id, ordinal)
LEFT JOIN assets a ON a.id = u.asset_id AND a.workspace_id = u.workspace_id
LEFT JOIN jobs j ON j.id = u.job_id AND j.workspace_id = u.workspace_id
"""

_GROUPS: Final = f"""
SELECT t.id AS target_id, w.id AS group_id
FROM targets t
JOIN target_groups w ON w.workspace_id = t.workspace_id AND w.id = ANY($2::uuid[])
WHERE t.id = ANY($1::uuid[]) AND {in_group("t", "w.id")}
"""

_PLACES: Final = """
SELECT r.recent::int, d.id AS digest_id
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::interval[])
  WITH ORDINALITY AS u (workspace_id, recipient, digest_key, idle, ordinal)
CROSS JOIN LATERAL (
  SELECT count(*) AS recent FROM (
    SELECT FROM notifications n
    WHERE n.workspace_id = u.workspace_id AND n.recipient = u.recipient AND n.digest_key = u.digest_key
      AND n.created_at > clock_timestamp() - $5::interval
    LIMIT $6) alike
) r
LEFT JOIN LATERAL (
  SELECT n.id FROM notifications n
  WHERE n.workspace_id = u.workspace_id AND n.recipient = u.recipient AND n.digest_key = u.digest_key
    AND n.created_at > clock_timestamp() - $7::interval
    AND n.is_digest AND n.updated_at > clock_timestamp() - u.idle
  ORDER BY n.created_at DESC LIMIT 1
) d ON true
ORDER BY u.ordinal
"""

_INSERT: Final = """
INSERT INTO notifications (workspace_id, recipient, type, severity, subject, run_id, target_id, data,
                           digest_key, is_digest, events, event_ids, occurred_at)
SELECT u.workspace_id, u.recipient, u.type, u.severity, u.subject, u.run_id, u.target_id, u.data::jsonb,
       u.digest_key, u.is_digest, u.events, u.event_ids::uuid[], u.occurred_at
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::uuid[], $8::text[],
            $9::text[], $10::boolean[], $11::int[], $12::text[], $13::timestamptz[])
  WITH ORDINALITY AS u (workspace_id, recipient, type, severity, subject, run_id, target_id, data,
                        digest_key, is_digest, events, event_ids, occurred_at, ordinal)
ORDER BY u.ordinal
RETURNING id, workspace_id, type
"""

_GROW: Final = """
UPDATE notifications n SET
  seq = nextval('notifications_seq'), events = n.events + u.events, updated_at = clock_timestamp(),
  event_ids = (n.event_ids || u.event_ids::uuid[])[1:$6],
  occurred_at = greatest(n.occurred_at, u.occurred_at),
  severity = CASE WHEN array_position($7::text[], u.severity) > array_position($7, n.severity)
                  THEN u.severity ELSE n.severity END,
  read_at = NULL
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::timestamptz[])
  AS u (id, events, event_ids, severity, occurred_at)
WHERE n.id = u.id
"""


@dataclass(frozen=True, slots=True)
class _Told:
    """An event that somebody is told."""

    event: BusEvent
    about: About


@dataclass(frozen=True, slots=True)
class _Inbox:
    """Notifications of one recipient that are alike."""

    workspace_id: UUID
    recipient: str
    digest_key: str


@dataclass(slots=True)
class _Row:
    """A notification to write, or what a digest takes in."""

    inbox: _Inbox
    told: Sequence[_Told]
    is_digest: bool = True

    @property
    def first(self) -> _Told:
        return self.told[0]

    @property
    def event_ids(self) -> str:
        return "{" + ",".join(str(each.event.envelope.id) for each in self.told[:FIRST_IDS]) + "}"

    @property
    def severity(self) -> Severity:
        return max((each.about.severity for each in self.told), key=LEVELS.index)


@dataclass(slots=True)
class _Plan:
    """Rows to write, and what open digests take in."""

    rows: list[_Row] = field(default_factory=list)
    growing: list[tuple[UUID, _Row]] = field(default_factory=list)


async def tell(conn: Connection, events: Sequence[BusEvent]) -> None:
    """Writes whom these events are told to, in a few statements, however many recipients there are.

    The caller has the lock of the lane's turn: nobody else writes notifications meanwhile.
    """
    heard = [event for event in events if not is_echo(event)]
    found = await audiences(conn, sorted({event.envelope.workspace_id for event in heard}))
    inboxes: dict[_Inbox, list[_Told]] = defaultdict(list)
    for told in await _judge(conn, [each for each in heard if _has_hearers(each, found)], found):
        sent = told.event.envelope
        for recipient in sorted(recipients_of(told.about, found[sent.workspace_id])):
            inboxes[_Inbox(sent.workspace_id, recipient, digest_key(told.event))].append(told)
    if inboxes:
        plan = await _arrange(conn, inboxes)
        await _grow(conn, plan.growing)
        await outbox.insert(conn, [_created(row) for row in await _write(conn, plan.rows)])


def _has_hearers(event: BusEvent, found: dict[UUID, Audience]) -> bool:
    return bool(found[event.envelope.workspace_id].everybody)


async def _judge(conn: Connection, events: Sequence[BusEvent], found: dict[UUID, Audience]) -> list[_Told]:
    """What each event is about. Its target is looked up only where a rule or a mute asks for it."""
    targets = {
        event.envelope.id: target
        for event in events
        if (target := _uuid(event.envelope.data.get("target_id"))) is not None
    }
    asked = [
        event
        for event in events
        if found[event.envelope.workspace_id].needs_targets and event.envelope.id not in targets
    ]
    if asked:
        rows = await conn.fetch(
            _TARGETS,
            [event.envelope.workspace_id for event in asked],
            [_uuid(event.envelope.data.get("asset_id")) for event in asked],
            [_uuid(event.envelope.data.get("job_id")) for event in asked],
        )
        known = {asked[row["ordinal"] - 1].envelope.id: row["target_id"] for row in rows}
        targets |= {event_id: target for event_id, target in known.items() if target is not None}
    groups = await _groups(conn, set(targets.values()), found)
    judged = []
    for event in events:
        target = targets.get(event.envelope.id)
        inside = groups[target] if target is not None else frozenset()
        about = About(
            event.envelope.type, loudness(event.envelope.type, event.envelope.data), target, frozenset(inside)
        )
        judged.append(_Told(event, about))
    return judged


async def _groups(conn: Connection, targets: set[UUID], found: dict[UUID, Audience]) -> dict[UUID, set[UUID]]:
    wanted = {rule.group_id for each in found.values() for rule in each.rules if rule.group_id}
    groups: dict[UUID, set[UUID]] = defaultdict(set)
    if wanted and targets:
        for row in await conn.fetch(_GROUPS, sorted(targets), sorted(wanted)):
            groups[row["target_id"]].add(row["group_id"])
    return groups


async def _arrange(conn: Connection, inboxes: dict[_Inbox, list[_Told]]) -> _Plan:
    """Decides what comes one by one and what goes into a digest. Index: notifications_alike."""
    rows = await conn.fetch(
        _PLACES,
        [inbox.workspace_id for inbox in inboxes],
        [inbox.recipient for inbox in inboxes],
        [inbox.digest_key for inbox in inboxes],
        [IDLE_OF_ACT if cause_of(told[0].event) else IDLE for told in inboxes.values()],
        MINUTE,
        MOST_ALONE,
        LONGEST,
    )
    plan = _Plan()
    for (inbox, told), row in zip(inboxes.items(), rows, strict=True):
        digest_id = row["digest_id"]
        is_caused = cause_of(told[0].event) is not None
        alone = count_alone(
            len(told), row["recent"], is_digest_open=digest_id is not None, is_caused=is_caused
        )
        plan.rows += [_Row(inbox, [each], is_digest=False) for each in told[:alone]]
        rest = told[alone:]
        if rest and digest_id is not None:
            plan.growing.append((digest_id, _Row(inbox, rest)))
        elif rest:
            plan.rows.append(_Row(inbox, rest))
    return plan


async def _write(conn: Connection, rows: Sequence[_Row]) -> list[Record]:
    sent = [row.first.event.envelope for row in rows]
    return await conn.fetch(
        _INSERT,
        [row.inbox.workspace_id for row in rows],
        [row.inbox.recipient for row in rows],
        [each.type for each in sent],
        [row.severity for row in rows],
        [each.subject for each in sent],
        [_uuid(each.data.get("run_id")) for each in sent],
        [row.first.about.target_id for row in rows],
        [encode_json(each.data) for each in sent],
        [row.inbox.digest_key for row in rows],
        [row.is_digest for row in rows],
        [len(row.told) for row in rows],
        [row.event_ids for row in rows],
        [row.told[-1].event.time for row in rows],
    )


async def _grow(conn: Connection, growing: Sequence[tuple[UUID, _Row]]) -> None:
    await conn.execute(
        _GROW,
        [digest_id for digest_id, _ in growing],
        [len(row.told) for _, row in growing],
        [row.event_ids for _, row in growing],
        [row.severity for _, row in growing],
        [row.told[-1].event.time for _, row in growing],
        FIRST_IDS,
        LEVELS,
    )


def _created(row: Record) -> Envelope:
    payload = NotificationPayload(notification_id=row["id"], cause=row["type"])
    return envelope(
        EVENT_CATALOG.notification.created,
        payload,
        workspace_id=row["workspace_id"],
        subject=names.notification_subject(row["id"]),
    )


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value)) if value else None
    except ValueError:
        return None
