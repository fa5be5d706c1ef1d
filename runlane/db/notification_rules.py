"""The rows of rules and mutes of notifications: who is told what, and what is not told for a while."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.keys import ALL_SCOPES, Scope
from runlane.db.pool import Connection, Record
from runlane.db.selections import keep_groups
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import Severity
from runlane.given_names import check_given_name
from runlane.notifications import DEFAULT, Audience, Mute, Rule, is_known, with_default

MAX_RULES: Final = 50
"""Of a workspace."""

MAX_MUTES: Final = 100
"""Of a workspace, those that are over not counted."""

MAX_RECIPIENTS: Final = 100
"""Of one event; by name, the others are not told."""

_READERS: Final = [ALL_SCOPES, Scope.NOTIFICATIONS_READ]


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule as a person writes it; one of the same name takes its place."""

    workspace_id: UUID
    name: str
    types: Sequence[str]
    least: Severity
    target_id: UUID | None = None
    group: str | None = None
    """Name or id."""
    recipients: Sequence[str] = ()
    is_on: bool = True


@dataclass(frozen=True, slots=True)
class NewMute:
    """What is not told for so long: of a rule, of a type, or about a target."""

    workspace_id: UUID
    about: Mute
    length: timedelta


_RULE_COLUMNS: Final = """id, name, event_types, least_severity, target_id, group_id, recipients, is_on,
  created_by, created_at, updated_at"""

_MUTE_COLUMNS: Final = "id, rule, event_type, target_id, until, reason, created_by, created_at"

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('notifications/' || $1::uuid::text, 0))"

_RULES: Final = f"""
SELECT workspace_id, {_RULE_COLUMNS} FROM notification_rules
WHERE workspace_id = ANY($1::uuid[]) ORDER BY workspace_id, name
"""

_MUTES: Final = f"""
SELECT workspace_id, {_MUTE_COLUMNS} FROM notification_mutes
WHERE workspace_id = ANY($1::uuid[]) AND until > clock_timestamp() ORDER BY workspace_id, id
"""

_EVERYBODY: Final = """
SELECT w.id AS workspace_id, k.name
FROM unnest($1::uuid[]) u (id)
JOIN workspaces w ON w.id = u.id AND w.deleted_at IS NULL
CROSS JOIN LATERAL (
  SELECT DISTINCT name FROM api_keys
  WHERE workspace_id = w.id AND scopes && $2::text[] AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > clock_timestamp())
  ORDER BY name LIMIT $3
) k
"""

_SAVE: Final = f"""
INSERT INTO notification_rules (workspace_id, name, event_types, least_severity, target_id, group_id,
                                recipients, is_on, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (workspace_id, name) DO UPDATE SET
  event_types = excluded.event_types, least_severity = excluded.least_severity,
  target_id = excluded.target_id, group_id = excluded.group_id, recipients = excluded.recipients,
  is_on = excluded.is_on, updated_at = clock_timestamp()
RETURNING {_RULE_COLUMNS}
"""

_REMOVE: Final = f"""
DELETE FROM notification_rules WHERE workspace_id = $1 AND id = $2 RETURNING {_RULE_COLUMNS}
"""

_FORGET: Final = "DELETE FROM notification_mutes WHERE workspace_id = $1 AND rule = $2"

_MUTE: Final = f"""
INSERT INTO notification_mutes (workspace_id, rule, event_type, target_id, until, reason, created_by)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::interval, $6, $7)
RETURNING {_MUTE_COLUMNS}
"""

_UNMUTE: Final = f"""
DELETE FROM notification_mutes WHERE workspace_id = $1 AND id = $2 RETURNING {_MUTE_COLUMNS}
"""

_IS_TARGET: Final = """
SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL)
"""


async def audiences(conn: Connection, workspace_ids: Sequence[UUID]) -> dict[UUID, Audience]:
    """Rules, mutes in force and possible recipients of these workspaces; one that is gone has nobody."""
    rules: dict[UUID, list[Rule]] = defaultdict(list)
    mutes: dict[UUID, list[Mute]] = defaultdict(list)
    names_of: dict[UUID, set[str]] = defaultdict(set)
    for row in await conn.fetch(_RULES, workspace_ids):
        rules[row["workspace_id"]].append(_rule(row))
    for row in await conn.fetch(_MUTES, workspace_ids):
        mutes[row["workspace_id"]].append(Mute(row["rule"], row["event_type"], row["target_id"]))
    for row in await conn.fetch(_EVERYBODY, workspace_ids, _READERS, MAX_RECIPIENTS):
        names_of[row["workspace_id"]].add(row["name"])
    return {
        each: Audience(with_default(rules[each]), tuple(mutes[each]), frozenset(names_of[each]))
        for each in workspace_ids
    }


async def list_rules(conn: Connection, workspace_id: UUID) -> Sequence[Mapping[str, object]]:
    """Rules of a workspace by name; without one of that name, the default rule comes first, without an id."""
    rows = [_shown(row) for row in await conn.fetch(_RULES, [workspace_id])]
    if any(row["name"] == DEFAULT for row in rows):
        return rows
    built_in = Rule(DEFAULT)
    shown: dict[str, object] = {
        "id": None, "name": DEFAULT, "event_types": [], "least_severity": built_in.least, "target_id": None,
        "group_id": None, "recipients": [], "is_on": True, "created_by": None, "created_at": None,
        "updated_at": None,
    }  # fmt: skip
    return [shown, *rows]


async def save_rule(conn: Connection, wanted: NewRule, act: Act) -> Mapping[str, object]:
    """Makes a rule, or changes the one of that name. Repeated, it changes nothing.

    Raises:
        Invalid: `name.ambiguous`, `notification.type`, `notification.recipient`, `notification.about`.
        NotFound: `target.not_found`, `group.not_found`.
        Conflict: `notification.too_many_rules`.
    """
    workspace_id = wanted.workspace_id
    check_given_name(wanted.name)
    _check_types(wanted.types)
    if wanted.target_id and wanted.group is not None:
        detail = "a rule is about one target, one group, or all of the workspace"
        raise Invalid(detail, code="notification.about", fields={"target_id": detail})
    await _require_target(conn, workspace_id, wanted.target_id)
    groups = await keep_groups(conn, workspace_id, [wanted.group] if wanted.group is not None else [])
    everybody = (await audiences(conn, [workspace_id]))[workspace_id].everybody
    if strangers := sorted(set(wanted.recipients) - everybody):
        detail = f"no valid key of this name reads notifications: {strangers[0]!r}"
        raise Invalid(detail, code="notification.recipient", fields={"recipients": detail})
    await conn.execute(_LOCK, workspace_id)
    others = [row for row in await conn.fetch(_RULES, [workspace_id]) if row["name"] != wanted.name]
    if len(others) >= MAX_RULES:
        raise Conflict(f"there are {MAX_RULES} rules already", code="notification.too_many_rules")
    (row,) = await conn.fetch(
        _SAVE, workspace_id, wanted.name, sorted(set(wanted.types)), wanted.least, wanted.target_id,
        groups[0] if groups else None, sorted(set(wanted.recipients)), wanted.is_on, act.name,
    )  # fmt: skip
    await _say(conn, workspace_id, row, act, Action.NOTIFICATION_RULE)
    return dict(row)


async def remove_rule(conn: Connection, workspace_id: UUID, rule_id: UUID, act: Act) -> Mapping[str, object]:
    """Removes a rule and its mutes; without one of its own, the workspace has the default rule again.

    Raises:
        NotFound: `notification.rule_not_found`.
    """
    row = await conn.fetchrow(_REMOVE, workspace_id, rule_id)
    if row is None:
        raise NotFound("no such rule", code="notification.rule_not_found")
    await conn.execute(_FORGET, workspace_id, row["name"])
    await _say(conn, workspace_id, row, act, Action.NOTIFICATION_RULE_REMOVE)
    return dict(row)


async def list_mutes(conn: Connection, workspace_id: UUID) -> Sequence[Mapping[str, object]]:
    """What is muted now."""
    return [_shown(row) for row in await conn.fetch(_MUTES, [workspace_id])]


async def mute(conn: Connection, wanted: NewMute, act: Act) -> Mapping[str, object]:
    """Mutes a rule, a type or a target for a while, by the database's clock.

    Raises:
        Invalid: `notification.type`.
        NotFound: `target.not_found`, `notification.rule_not_found`.
        Conflict: `notification.too_many_mutes`.
    """
    workspace_id, about = wanted.workspace_id, wanted.about
    _check_types([about.type] if about.type is not None else [])
    await _require_target(conn, workspace_id, about.target_id)
    rules = {str(row["name"]) for row in await list_rules(conn, workspace_id)}
    if about.rule is not None and about.rule not in rules:
        raise NotFound("no such rule", code="notification.rule_not_found")
    await conn.execute(_LOCK, workspace_id)
    if len(await conn.fetch(_MUTES, [workspace_id])) >= MAX_MUTES:
        raise Conflict(f"there are {MAX_MUTES} mutes already", code="notification.too_many_mutes")
    which = (about.rule, about.type, about.target_id)
    (row,) = await conn.fetch(_MUTE, workspace_id, *which, wanted.length, act.clean_reason, act.name)
    await _say(conn, workspace_id, row, act, Action.NOTIFICATION_MUTE)
    return dict(row)


async def unmute(conn: Connection, workspace_id: UUID, mute_id: UUID, act: Act) -> Mapping[str, object]:
    """Ends a mute before its time.

    Raises:
        NotFound: `notification.mute_not_found`.
    """
    row = await conn.fetchrow(_UNMUTE, workspace_id, mute_id)
    if row is None:
        raise NotFound("no such mute", code="notification.mute_not_found")
    await _say(conn, workspace_id, row, act, Action.NOTIFICATION_UNMUTE)
    return dict(row)


def _rule(row: Record) -> Rule:
    return Rule(
        row["name"],
        tuple(row["event_types"]),
        Severity(row["least_severity"]),
        row["target_id"],
        row["group_id"],
        tuple(row["recipients"]),
        row["is_on"],
    )


def _shown(row: Record) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "workspace_id"}


def _check_types(types: Sequence[str]) -> None:
    unknown = [each for each in types if not is_known(each)]
    if unknown:
        detail = f"no event that may notify is called {unknown[0]!r}, or begins so"
        raise Invalid(detail, code="notification.type", fields={"types": detail})


async def _require_target(conn: Connection, workspace_id: UUID, target_id: UUID | None) -> None:
    if target_id is not None and not await conn.fetchval(_IS_TARGET, workspace_id, target_id):
        raise NotFound("no such target", code="target.not_found")


async def _say(conn: Connection, workspace_id: UUID, row: Record, act: Act, action: Action) -> None:
    """Says who did it. Each time is an act of its own."""
    at = row.get("updated_at") or row["created_at"]
    value = row.get("name") or row.get("rule") or row.get("event_type") or str(row["target_id"])
    subject = names.notification_rule_subject(row["id"])
    deed = Deed(action, workspace_id, subject, ordinal=at.isoformat(), value=value)
    await outbox.insert(conn, [acted(act, deed)])
