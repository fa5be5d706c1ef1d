"""Connectors as rows: who added which image as a tool, and what of it a workspace may name.

Each is a row of `tools`, so that jobs of it are admitted, dispatched and claimed like those of any other
tool, and a row of `connectors` with its manifest. One that is switched off begins nothing new; what runs is
finished.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.connectors import Connector, Manifest, read_manifest
from runlane.db import nudges
from runlane.db.acts import Act, Action
from runlane.db.pool import Connection, Record
from runlane.db.rule_deeds import RuleDeed, tell
from runlane.errors import Conflict, NotFound

MAX_CONNECTORS: Final = 200
"""Of a workspace, and of the platform."""


@dataclass(frozen=True, slots=True)
class NewConnector:
    """What is added. `workspace_id` None: for every workspace."""

    workspace_id: UUID | None
    manifest: Manifest

    @property
    def tool_id(self) -> str:
        """Id of its tool: two workspaces may have connectors of the same name."""
        slug = self.manifest.slug
        return slug if self.workspace_id is None else f"{slug}_{self.workspace_id.hex[-12:]}"


_COLUMNS: Final = """c.id, c.workspace_id, c.slug, c.tool_id, t.version, t.category, t.fans_out, t.enabled,
       c.image, c.digest, c.manifest, c.created_by, c.created_at, c.changed_at"""

# Additions of one scope follow each other, so that none is counted twice or forgotten.
_LOCK: Final = """
SELECT pg_advisory_xact_lock(hashtextextended('connectors/' || coalesce($1::uuid::text, ''), 0))
"""

_COUNT: Final = "SELECT count(*) FROM connectors WHERE workspace_id IS NOT DISTINCT FROM $1"

_OF_PLATFORM: Final = "SELECT EXISTS (SELECT FROM connectors WHERE workspace_id IS NULL AND slug = $1)"

_FIND: Final = f"""
SELECT {_COLUMNS} FROM connectors c JOIN tools t ON t.id = c.tool_id
WHERE c.workspace_id IS NOT DISTINCT FROM $1 AND c.slug = $2
FOR NO KEY UPDATE OF c, t
"""

_TOOL: Final = """
INSERT INTO tools (id, workspace_id, category, fans_out, toolset, shape, version, wall_s, parallelism,
                   max_batch, large_max_batch)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
ON CONFLICT (id) DO UPDATE SET
  version = excluded.version, wall_s = excluded.wall_s, parallelism = excluded.parallelism,
  max_batch = excluded.max_batch, large_max_batch = excluded.large_max_batch
WHERE tools.workspace_id IS NOT DISTINCT FROM excluded.workspace_id AND tools.toolset = excluded.toolset
RETURNING id
"""

_CONNECTOR: Final = """
INSERT INTO connectors (workspace_id, slug, tool_id, image, digest, manifest, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tool_id) DO UPDATE SET
  image = excluded.image, digest = excluded.digest, manifest = excluded.manifest,
  changed_at = clock_timestamp()
"""

_VISIBLE: Final = f"""
SELECT {_COLUMNS} FROM connectors c JOIN tools t ON t.id = c.tool_id
WHERE c.workspace_id = $1 OR c.workspace_id IS NULL
ORDER BY c.slug, c.workspace_id NULLS LAST
"""

# A workspace's own one is found before one of the platform that came later under the same name.
_SHOW: Final = f"""
SELECT {_COLUMNS} FROM connectors c JOIN tools t ON t.id = c.tool_id
WHERE (c.workspace_id = $1 OR c.workspace_id IS NULL) AND c.slug = $2
ORDER BY c.workspace_id NULLS LAST LIMIT 1
"""

_NAMED: Final = """
SELECT DISTINCT ON (slug) slug, tool_id, manifest FROM connectors
WHERE (workspace_id = $1 OR workspace_id IS NULL) AND slug = ANY($2::text[])
ORDER BY slug, workspace_id NULLS LAST
"""

_MANIFEST: Final = "SELECT manifest FROM connectors WHERE tool_id = $1"

_SWITCH: Final = "UPDATE tools SET enabled = $2 WHERE id = $1 AND enabled <> $2 RETURNING id"

_CONCERNED: Final = """
SELECT h.id FROM job_histories h
WHERE h.closed_at IS NULL AND ($2::uuid IS NULL OR h.workspace_id = $2)
  AND EXISTS (SELECT FROM run_steps s WHERE s.run_id = h.id AND s.closed_at IS NULL AND s.tool_id = $1)
ORDER BY h.id
"""


async def add_connector(conn: Connection, wanted: NewConnector, act: Act) -> Mapping[str, object]:
    """Adds a connector, or puts a new manifest in place of its old one; the same once more changes nothing.

    Jobs that are claimed later are given the new manifest. One that is switched off stays so.

    Raises:
        Conflict: `connector.taken`, the platform has one of that name; `connector.changed_kind`, the new
            manifest finds something else or from something else; `connector.too_many`.
    """
    manifest, workspace_id = wanted.manifest, wanted.workspace_id
    await conn.execute(_LOCK, workspace_id)
    found = await conn.fetchrow(_FIND, workspace_id, manifest.slug)
    if found is not None and found["manifest"] == manifest.as_json():
        return {**found, "is_changed": False}
    if found is None:
        await _require_room(conn, wanted)
    elif (found["category"], found["fans_out"]) != (manifest.category, manifest.fans_out):
        detail = "steps are built on what a tool finds and from what: take another slug"
        raise Conflict(detail, code="connector.changed_kind")
    row = await _write(conn, wanted, act)
    await _say(conn, row, act, Action.CONNECTOR)
    return {**row, "is_changed": True}


async def switch_connector(
    conn: Connection, workspace_id: UUID | None, slug: str, act: Act, *, is_on: bool
) -> Mapping[str, object]:
    """Switches a connector off or on; one that is so already stays so. Runs that have jobs of it are told.

    Raises:
        NotFound: `connector.not_found`; one of the platform is not one of a workspace.
    """
    found = await _find(conn, workspace_id, slug)
    if not await conn.fetchval(_SWITCH, found["tool_id"], is_on):
        return {**found, "is_changed": False}
    row = await _find(conn, workspace_id, slug)
    runs = [run["id"] for run in await conn.fetch(_CONCERNED, row["tool_id"], workspace_id)]
    if runs:
        await nudges.nudge_runs(conn, runs)
    await _say(conn, row, act, Action.CONNECTOR_ENABLE if is_on else Action.CONNECTOR_DISABLE)
    return {**row, "is_changed": True}


async def list_connectors(conn: Connection, workspace_id: UUID | None) -> Sequence[Mapping[str, object]]:
    """Connectors that a workspace may name, its own before others; None: those of the platform."""
    return [dict(row) for row in await conn.fetch(_VISIBLE, workspace_id)]


async def show_connector(conn: Connection, workspace_id: UUID | None, slug: str) -> Mapping[str, object]:
    """The connector that a step of the workspace means by this name.

    Raises:
        NotFound: `connector.not_found`.
    """
    row = await conn.fetchrow(_SHOW, workspace_id, slug)
    if row is None:
        raise NotFound("no such connector", code="connector.not_found")
    return dict(row)


async def named(conn: Connection, workspace_id: UUID, slugs: Collection[str]) -> dict[str, Connector]:
    """What steps of the workspace mean by these names; no statement if there are none."""
    if not slugs:
        return {}
    rows = await conn.fetch(_NAMED, workspace_id, sorted(slugs))
    return {row["slug"]: Connector(row["tool_id"], read_manifest(row["manifest"])) for row in rows}


async def manifest_of(conn: Connection, tool_id: str) -> Mapping[str, object] | None:
    """The manifest of a tool that is a connector."""
    manifest: Mapping[str, object] | None = await conn.fetchval(_MANIFEST, tool_id)
    return manifest


async def _find(conn: Connection, workspace_id: UUID | None, slug: str) -> Record:
    row = await conn.fetchrow(_FIND, workspace_id, slug)
    if row is None:
        raise NotFound("no such connector", code="connector.not_found")
    return row


async def _require_room(conn: Connection, wanted: NewConnector) -> None:
    if wanted.workspace_id is not None and await conn.fetchval(_OF_PLATFORM, wanted.manifest.slug):
        raise Conflict("the platform has a connector of that name", code="connector.taken")
    if await conn.fetchval(_COUNT, wanted.workspace_id) >= MAX_CONNECTORS:
        raise Conflict(f"there are {MAX_CONNECTORS} connectors already", code="connector.too_many")


async def _write(conn: Connection, wanted: NewConnector, act: Act) -> Record:
    manifest, tool_id = wanted.manifest, wanted.tool_id
    tool = manifest.tool()
    written = await conn.fetchval(
        _TOOL,
        tool_id,
        wanted.workspace_id,
        tool.category,
        tool.fans_out,
        tool.toolset,
        tool.shape,
        tool.version,
        tool.wall_s,
        tool.parallelism,
        tool.max_batch,
    )
    if written is None:
        raise Conflict("another tool has that id", code="connector.taken")
    source = (manifest.image, manifest.digest, manifest.as_json())
    await conn.execute(_CONNECTOR, wanted.workspace_id, manifest.slug, tool_id, *source, act.name)
    return await _find(conn, wanted.workspace_id, manifest.slug)


async def _say(conn: Connection, row: Record, act: Act, action: Action) -> None:
    """Says who did it in each workspace that it concerns."""
    value = f"{row['slug']} {row['version']} {row['digest']}"
    await tell(conn, act, RuleDeed(action, row["workspace_id"], names.connector_subject(row["id"]), value))
