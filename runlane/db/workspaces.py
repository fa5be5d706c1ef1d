"""Workspaces: the tenants."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from uuid import UUID

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.pool import Connection
from runlane.errors import Conflict, Invalid, NotFound
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import WorkspaceCreated
from runlane.given_names import check_given_name


async def create_workspace(conn: Connection, name: str, networks: Sequence[str] = ()) -> UUID:
    """Makes a workspace whose targets may lie in these networks besides global addresses.

    Names are labels for people, but two alike help nobody.

    Raises:
        Invalid: `workspace.name`, `name.ambiguous`, `workspace.network`.
        Conflict: `workspace.duplicate`.
    """
    if not 1 <= len(name) <= 200 or not name.isprintable():
        detail = "a name has 1 to 200 printable characters"
        raise Invalid(detail, code="workspace.name", fields={"name": detail})
    check_given_name(name)
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


async def concerned_by(conn: Connection, workspace_id: UUID | None) -> list[UUID]:
    """The workspaces that a rule of one concerns: this one, or all of them if it is the platform's (None)."""
    if workspace_id is not None:
        return [workspace_id]
    rows = await conn.fetch("SELECT id FROM workspaces WHERE deleted_at IS NULL ORDER BY id")
    return [row["id"] for row in rows]


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


@dataclass(frozen=True, slots=True)
class WorkspaceRules:
    """What a workspace may do; None leaves as it is."""

    allow_shared: bool | None = None
    """Whether shared scan workers may take its jobs."""
    shared_slot_share: float | None = None
    """Share of the slots of shared workers that it may hold while others wait."""
    max_open_runs: int | None = None


async def set_rules(conn: Connection, workspace_id: UUID, rules: WorkspaceRules) -> WorkspaceRules:
    """Changes what a workspace may do, from the next dispatch, claim and start on; answers what holds now.

    Raises:
        Invalid: `workspace.share`, `workspace.open_runs`.
    """
    share, most = rules.shared_slot_share, rules.max_open_runs
    if share is not None and not 0 < share <= 1:
        raise Invalid("a share is above 0 and at most 1", code="workspace.share")
    if most is not None and most < 1:
        raise Invalid("one run at least must be possible", code="workspace.open_runs")
    (row,) = await conn.fetch(
        """
        UPDATE workspaces SET allow_shared = coalesce($2, allow_shared),
          shared_slot_share = coalesce($3, shared_slot_share), max_open_runs = coalesce($4, max_open_runs)
        WHERE id = $1
        RETURNING allow_shared, shared_slot_share, max_open_runs
        """,
        workspace_id,
        rules.allow_shared,
        share,
        most,
    )
    if rules.allow_shared is not None:
        blocked = await conn.fetch(
            "SELECT id FROM job_histories WHERE workspace_id = $1 AND closed_at IS NULL", workspace_id
        )
        await nudges.nudge_runs(conn, [run["id"] for run in blocked])
    return WorkspaceRules(**dict(row))


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
