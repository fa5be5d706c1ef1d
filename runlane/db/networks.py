"""Internal networks: places behind workers of their own, with the addresses that those may contact.

Two networks of a workspace may have the same addresses: the private range of one site is not that of another.
What refers to a network (targets, workers, keys, rates) keeps it; whoever is to refer to it holds its row
meanwhile, so none is deleted under a target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import Text, cast, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.tables import internal_networks as networks
from runlane.errors import Conflict, NotFound, Stale
from runlane.given_names import check_given_name
from runlane.tools.cidrs import parse_cidrs

MAX_NETWORKS: Final = 200
"""Of a workspace."""

ORDERS: Final[Orders] = {"created_at": (networks.c.id,), "name": (networks.c.name, networks.c.id)}


@dataclass(frozen=True, slots=True)
class NetworkEdit:
    """What a caller wants changed, and the version that this was made from. None: it stays."""

    version: int
    name: str | None = None
    cidrs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a target is to be, and which addresses may be targets there."""

    network_id: UUID | None
    """None: it is in no internal network."""
    cidrs: Sequence[str]

    @property
    def is_bound(self) -> bool:
        """Whether nothing outside of `cidrs` may be a target there."""
        return self.network_id is not None


_COLUMNS: Final = "id, workspace_id, name, cidrs::text[] AS cidrs, version, created_by, created_at"

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_COUNT: Final = "SELECT count(*)::int FROM internal_networks WHERE workspace_id = $1"

_INSERT: Final = f"""
INSERT INTO internal_networks (workspace_id, name, cidrs, created_by) VALUES ($1, $2, $3::text[]::cidr[], $4)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING {_COLUMNS}
"""

_FIND: Final = f"SELECT {_COLUMNS} FROM internal_networks WHERE workspace_id = $1 AND id = $2"

_HOLD: Final = f"{_FIND} FOR UPDATE"

_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM internal_networks WHERE workspace_id = $1 AND name = $2 AND id <> $3)
"""

_OUTSIDE: Final = """
SELECT value FROM targets
WHERE network_id = $2 AND workspace_id = $1 AND deleted_at IS NULL AND kind IN ('ip', 'cidr')
  AND NOT EXISTS (SELECT FROM unnest($3::text[]) c (cidr) WHERE value::inet <<= c.cidr::inet)
LIMIT 5
"""

_EDIT: Final = f"""
UPDATE internal_networks SET name = $3, cidrs = $4::text[]::cidr[], version = version + 1
WHERE workspace_id = $1 AND id = $2
RETURNING {_COLUMNS}
"""

# In parentheses, so that each kind shows itself in the answer.
_USERS: Final = """
(SELECT 'target ' || value AS name FROM targets
 WHERE network_id = $2 AND workspace_id = $1 AND deleted_at IS NULL LIMIT 2)
UNION ALL
(SELECT 'worker ' || name FROM workers
 WHERE network_id = $2 AND workspace_id = $1 AND deleted_at IS NULL LIMIT 2)
UNION ALL
(SELECT 'key ' || name FROM api_keys
 WHERE network_id = $2 AND workspace_id = $1 AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > clock_timestamp()) LIMIT 2)
UNION ALL
(SELECT 'rate ' || id FROM rates WHERE network_id = $2 AND workspace_id = $1)
"""

# What is deleted or worth nothing any more lets go of it; anything else the foreign keys refuse.
_LET_GO: Final = (
    """UPDATE targets SET network_id = NULL
       WHERE network_id = $2 AND workspace_id = $1 AND deleted_at IS NOT NULL""",
    """UPDATE workers SET network_id = NULL
       WHERE network_id = $2 AND workspace_id = $1 AND deleted_at IS NOT NULL""",
    """UPDATE api_keys SET network_id = NULL
       WHERE network_id = $2 AND workspace_id = $1
         AND (revoked_at IS NOT NULL OR expires_at <= clock_timestamp())""",
)

_DELETE: Final = "DELETE FROM internal_networks WHERE workspace_id = $1 AND id = $2"

_NAMED: Final = f"""
SELECT {_COLUMNS} FROM internal_networks
WHERE workspace_id = $1 AND (name = $2 OR id::text = lower($2))
FOR KEY SHARE
"""

_NOWHERE: Final = "SELECT allowed_networks::text[] FROM workspaces WHERE id = $1"


async def create_network(
    conn: Connection, workspace_id: UUID, name: str, cidrs: Sequence[str], act: Act
) -> dict[str, object]:
    """Makes a network.

    Raises:
        Invalid: `name.ambiguous`, `network.cidr`, `network.cidrs`, `network.overlap`.
        Conflict: `network.duplicate`, the name is taken; `network.too_many`.
    """
    check_given_name(name)
    parsed = parse_cidrs(cidrs)
    await conn.execute(_LOCK, f"networks/{workspace_id}")
    if await conn.fetchval(_COUNT, workspace_id) >= MAX_NETWORKS:
        raise Conflict(f"a workspace has at most {MAX_NETWORKS} networks", code="network.too_many")
    row = await conn.fetchrow(_INSERT, workspace_id, name, parsed, act.name)
    if row is None:
        raise _duplicate()
    return await _done(conn, row, act, Action.NETWORK_CREATE)


async def edit_network(
    conn: Connection, workspace_id: UUID, network_id: UUID, edit: NetworkEdit, act: Act
) -> dict[str, object]:
    """Renames a network or gives it other CIDRs, which count for what is claimed from then on.

    Raises:
        NotFound: `network.not_found`.
        Stale: `etag.stale`, it was changed since that version.
        Invalid: as `create_network`.
        Conflict: `network.duplicate`; `network.in_use`, targets would be outside of it.
    """
    row = await _hold(conn, workspace_id, network_id)
    if row["version"] != edit.version:
        raise Stale(f"the network was changed: it is version {row['version']} now")
    name = edit.name or row["name"]
    check_given_name(name)
    cidrs = row["cidrs"] if edit.cidrs is None else parse_cidrs(edit.cidrs)
    if outside := [each["value"] for each in await conn.fetch(_OUTSIDE, workspace_id, network_id, cidrs)]:
        raise Conflict(f"targets would be outside of it: {', '.join(outside)}", code="network.in_use")
    await conn.execute(_LOCK, f"networks/{workspace_id}")
    if await conn.fetchval(_IS_TAKEN, workspace_id, name, network_id):
        raise _duplicate()
    (edited,) = await conn.fetch(_EDIT, workspace_id, network_id, name, cidrs)
    return await _done(conn, edited, act, Action.NETWORK)


async def delete_network(
    conn: Connection, workspace_id: UUID, network_id: UUID, act: Act
) -> dict[str, object]:
    """Deletes a network that nothing refers to. What was found in it stays.

    Raises:
        NotFound: `network.not_found`.
        Conflict: `network.in_use`, targets, workers, valid keys or rates refer to it: without it they would
            be in the open.
    """
    row = await _hold(conn, workspace_id, network_id)
    if users := [user["name"] for user in await conn.fetch(_USERS, workspace_id, network_id)]:
        raise Conflict(f"it is used by: {', '.join(users[:5])}", code="network.in_use")
    for statement in _LET_GO:
        await conn.execute(statement, workspace_id, network_id)
    answer = await _done(conn, row, act, Action.NETWORK_DELETE)
    await conn.execute(_DELETE, workspace_id, network_id)
    return answer


async def get_network(conn: Connection, workspace_id: UUID, network_id: UUID) -> dict[str, object]:
    """One network.

    Raises:
        NotFound: `network.not_found`.
    """
    row = await conn.fetchrow(_FIND, workspace_id, network_id)
    if row is None:
        raise _not_found()
    return dict(row)


async def list_networks(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Networks of a workspace."""
    shown = [each for each in networks.c if each.name != "cidrs"]
    statement = select(*shown, cast(networks.c.cidrs, ARRAY(Text)).label("cidrs")).where(
        networks.c.workspace_id == workspace_id
    )
    return await fetch_page(conn, statement, ORDERS, page)


async def keep_network(conn: Connection, workspace_id: UUID, network: str) -> UUID:
    """The network of this name or id, which is not deleted before the transaction of the caller ends.

    Raises:
        NotFound: `network.not_found`.
    """
    return _id(await _named(conn, workspace_id, network))


async def reach_of(conn: Connection, workspace_id: UUID, network: str | None) -> Reach:
    """What may be a target in the network of this name or id, or outside of any (None). As `keep_network`."""
    if network is None:
        return Reach(None, await conn.fetchval(_NOWHERE, workspace_id) or ())
    row = await _named(conn, workspace_id, network)
    return Reach(_id(row), row["cidrs"])


async def _named(conn: Connection, workspace_id: UUID, network: str) -> Record:
    row = await conn.fetchrow(_NAMED, workspace_id, network)
    if row is None:
        raise _not_found()
    return row


def _id(row: Record) -> UUID:
    network_id: UUID = row["id"]
    return network_id


async def _hold(conn: Connection, workspace_id: UUID, network_id: UUID) -> Record:
    row = await conn.fetchrow(_HOLD, workspace_id, network_id)
    if row is None:
        raise _not_found()
    return row


async def _done(conn: Connection, row: Record, act: Act, action: Action) -> dict[str, object]:
    subject = names.network_subject(row["id"])
    deed = Deed(action, row["workspace_id"], subject, ordinal=str(row["version"]), value=row["name"])
    await outbox.insert(conn, [acted(act, deed)])
    return dict(row)


def _not_found() -> NotFound:
    return NotFound("no such network", code="network.not_found")


def _duplicate() -> Conflict:
    detail = "there is a network of that name"
    return Conflict(detail, code="network.duplicate", fields={"name": detail})
