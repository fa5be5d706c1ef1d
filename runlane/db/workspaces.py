"""Workspaces: the tenants."""

from collections.abc import Sequence
from ipaddress import ip_network
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import WorkspaceCreated


async def create_workspace(conn: Connection, name: str, networks: Sequence[str] = ()) -> UUID:
    """Makes a workspace whose targets may lie in these networks besides global addresses.

    Names are labels for people, but two alike help nobody.

    Raises:
        Invalid: `workspace.name`, `workspace.network`.
        Conflict: `workspace.duplicate`.
    """
    if not 1 <= len(name) <= 200 or not name.isprintable():
        detail = "a name has 1 to 200 printable characters"
        raise Invalid(detail, code="workspace.name", fields={"name": detail})
    cidrs = _parse(networks)
    # One maker of a name at a time: there is no unique index that would say no to the second.
    await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"workspace/{name}")
    if await _find(conn, name) is not None:
        raise Conflict(f"there is a workspace {name} already", code="workspace.duplicate")
    workspace_id: UUID = await conn.fetchval(
        "INSERT INTO workspaces (name, allowed_networks) VALUES ($1, $2::text[]::cidr[]) RETURNING id",
        name,
        cidrs,
    )
    created = envelope(
        EVENT_CATALOG.workspace.created,
        WorkspaceCreated(workspace_id=workspace_id, name=name),
        workspace_id=workspace_id,
        subject=names.workspace_subject(workspace_id),
    )
    await outbox.insert(conn, [created])
    return workspace_id


async def find_workspace(conn: Connection, name_or_id: str) -> UUID:
    """Finds a workspace by its id or name.

    Raises:
        NotFound: `workspace.not_found`.
    """
    try:
        wanted = UUID(name_or_id)
    except ValueError:
        found = await _find(conn, name_or_id)
    else:
        found = await conn.fetchval("SELECT id FROM workspaces WHERE id = $1 AND deleted_at IS NULL", wanted)
    if found is None:
        raise NotFound(f"no workspace {name_or_id}", code="workspace.not_found")
    return found


async def allow_networks(conn: Connection, workspace_id: UUID, networks: Sequence[str]) -> None:
    """Adds networks to those that a workspace may scan; safe to repeat.

    Raises:
        Invalid: `workspace.network`.
    """
    await conn.execute(
        """
        UPDATE workspaces
        SET allowed_networks =
          (SELECT array_agg(DISTINCT n) FROM unnest(allowed_networks || $2::text[]::cidr[]) n)
        WHERE id = $1 AND NOT allowed_networks @> $2::text[]::cidr[]
        """,
        workspace_id,
        _parse(networks),
    )


async def _find(conn: Connection, name: str) -> UUID | None:
    found: UUID | None = await conn.fetchval(
        "SELECT id FROM workspaces WHERE name = $1 AND deleted_at IS NULL ORDER BY id LIMIT 1", name
    )
    return found


def _parse(networks: Sequence[str]) -> list[str]:
    parsed: list[str] = []
    for text in networks:
        try:
            parsed.append(str(ip_network(text)))
        except ValueError as error:
            raise Invalid(f"{text!r} is not a network: {error}", code="workspace.network") from error
    return parsed
