"""The rows of rates: who is sent how much. What they do to claims: `runlane.db.rates`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.acts import Act, Action
from runlane.db.pool import Connection, Record
from runlane.db.rule_deeds import RuleDeed, tell
from runlane.errors import Conflict, NotFound

MAX_RATES: Final = 1_000
"""Of a workspace: all of them are read by each claim."""


@dataclass(frozen=True, slots=True)
class NewRate:
    """What is sent at most so much a second: a target, a network, or all of the workspace together.

    `workspace_id` None: each single target, in every workspace.
    """

    workspace_id: UUID | None
    per_second: int
    target_id: UUID | None = None
    network_id: UUID | None = None


_COLUMNS: Final = "id, workspace_id, target_id, network_id, per_second, created_by, created_at"

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('rate_rules/' || $1::uuid::text, 0))"
_COUNT_OTHERS: Final = """
SELECT count(*) FROM rates
WHERE workspace_id = $1 AND (target_id, network_id) IS DISTINCT FROM ($2::uuid, $3::uuid)
"""

_SET: Final = f"""
INSERT INTO rates (workspace_id, target_id, network_id, per_second, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id, network_id, target_id) DO UPDATE SET per_second = excluded.per_second
RETURNING {_COLUMNS}, old.per_second IS NOT DISTINCT FROM new.per_second AS is_same
"""

_LIST: Final = f"""
SELECT {_COLUMNS} FROM rates WHERE workspace_id = $1 OR workspace_id IS NULL
ORDER BY workspace_id NULLS FIRST, id
"""

_REMOVE: Final = (
    f"DELETE FROM rates WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 RETURNING {_COLUMNS}"
)

_IS_TARGET: Final = (
    "SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL)"
)
_IS_NETWORK: Final = "SELECT EXISTS (SELECT FROM internal_networks WHERE workspace_id = $1 AND id = $2)"


async def set_rate(conn: Connection, wanted: NewRate, act: Act) -> Mapping[str, object]:
    """Sets a rate, for what is claimed from now on. Repeatable.

    Raises:
        NotFound: `target.not_found`, `network.not_found`.
        Conflict: `rate.too_many`.
    """
    workspace_id = wanted.workspace_id
    if wanted.target_id and not await conn.fetchval(_IS_TARGET, workspace_id, wanted.target_id):
        raise NotFound("no such target", code="target.not_found")
    if wanted.network_id and not await conn.fetchval(_IS_NETWORK, workspace_id, wanted.network_id):
        raise NotFound("no such network", code="network.not_found")
    where = (workspace_id, wanted.target_id, wanted.network_id)
    if workspace_id is not None:
        await conn.execute(_LOCK, workspace_id)
        if await conn.fetchval(_COUNT_OTHERS, *where) >= MAX_RATES:
            raise Conflict(f"a workspace has at most {MAX_RATES} rates", code="rate.too_many")
    (row,) = await conn.fetch(_SET, *where, wanted.per_second, act.name)
    if not row["is_same"]:
        await _follow_up(conn, row, act, Action.RATE)
    return dict(row)


async def remove_rate(
    conn: Connection, workspace_id: UUID | None, rate_id: UUID, act: Act
) -> Mapping[str, object]:
    """Removes a rate; one of the platform is not one of a workspace.

    Raises:
        NotFound: `rate.not_found`.
    """
    row = await conn.fetchrow(_REMOVE, rate_id, workspace_id)
    if row is None:
        raise NotFound("no such rate", code="rate.not_found")
    await _follow_up(conn, row, act, Action.RATE_REMOVE)
    return dict(row)


async def list_rates(conn: Connection, workspace_id: UUID | None) -> Sequence[Mapping[str, object]]:
    """Rates that count in a workspace; None: those of the platform."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def _follow_up(conn: Connection, row: Record, act: Act, action: Action) -> None:
    """Nudges runs that may have waited for it, and says who did it in each workspace that it concerns."""
    await nudges.nudge_blocked(conn, row["workspace_id"])
    subject, value = names.rate_subject(row["id"]), f"{row['per_second']}/s"
    await tell(conn, act, RuleDeed(action, row["workspace_id"], subject, value))
