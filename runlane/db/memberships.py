"""Memberships: which assets are in which project, decided by statements over a portion of assets at a time.

Whoever decides holds the rows of the projects, so that rules do not change meanwhile and nobody else decides:
the lane, of assets that an event is about, and the evaluation, of all assets portion by portion. Both write
what the rules and the inventory say by then, whatever was there: a repeated call changes nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox, project_triggers
from runlane.db.pool import Connection, Record
from runlane.db.project_triggers import Cause
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.automation_payloads import ProjectAssets

PORTION: Final = 1_000
"""Assets that are compared at once."""

SAMPLE: Final = 100
"""Assets that an event names."""

LOOK_AGAIN_H: Final = 1
"""All assets are compared again so often: what changes without an event of its own is seen then."""

_HOLD: Final = """
SELECT id, name FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE
"""

_LEVELS: Final = "(ARRAY['info', 'low', 'medium', 'high', 'critical'])"

SETTLE: Final = f"""
WITH looked AS MATERIALIZED (
  SELECT a.id, a.target_id, a.value, a.addresses, t.tags
  FROM assets a JOIN targets t ON t.id = a.target_id AND t.deleted_at IS NULL
  WHERE a.workspace_id = $1 AND a.id = ANY($2::uuid[]) AND a.gone_at IS NULL
), rules AS MATERIALIZED (
  SELECT s.project_id, s.kind, s.value FROM project_scopes s WHERE s.project_id = ANY($3::uuid[])
), facts AS MATERIALIZED (
  SELECT l.id, 'domain' AS kind, array_to_string(x.labels[n:], '.') AS value
  FROM looked l CROSS JOIN LATERAL (SELECT string_to_array(l.value, '.') AS labels) x
  CROSS JOIN LATERAL generate_subscripts(x.labels, 1) n
  UNION ALL SELECT id, 'target', target_id::text FROM looked
  UNION ALL SELECT l.id, 'tag', tag FROM looked l CROSS JOIN unnest(l.tags) tag
  UNION ALL
  SELECT l.id, 'port', s.port::text
  FROM looked l
  JOIN asset_services s ON s.workspace_id = $1 AND s.asset_id = l.id AND s.closed_at IS NULL
  WHERE EXISTS (SELECT FROM rules WHERE kind = 'port')
  UNION ALL
  SELECT l.id, 'technology', lower(h.name)
  FROM looked l
  JOIN asset_services s ON s.workspace_id = $1 AND s.asset_id = l.id AND s.closed_at IS NULL
  JOIN technologies h ON h.workspace_id = $1 AND h.service_id = s.id
  WHERE EXISTS (SELECT FROM rules WHERE kind = 'technology')
  UNION ALL
  SELECT l.id, 'severity', least.level
  FROM looked l
  JOIN vulnerabilities v ON v.workspace_id = $1 AND v.asset_id = l.id AND v.status = 'open'
  CROSS JOIN LATERAL unnest({_LEVELS}[:array_position({_LEVELS}, v.severity)]) least (level)
  WHERE EXISTS (SELECT FROM rules WHERE kind = 'severity')
), matched AS MATERIALIZED (
  SELECT r.project_id, f.id AS asset_id FROM facts f JOIN rules r ON r.kind = f.kind AND r.value = f.value
  UNION
  SELECT r.project_id, l.id
  FROM looked l CROSS JOIN unnest(l.addresses) address
  JOIN rules r ON CASE r.kind WHEN 'cidr' THEN address <<= r.value::inet ELSE false END
  UNION
  SELECT r.project_id, l.id
  FROM rules r
  JOIN target_groups g ON g.workspace_id = $1 AND g.id::text = CASE r.kind WHEN 'group' THEN r.value END
  JOIN looked l ON g.tags <> '{{}}' AND l.tags @> g.tags OR EXISTS (
    SELECT FROM target_group_members m WHERE m.group_id = g.id AND m.target_id = l.target_id)
), removed AS (
  DELETE FROM project_assets m
  WHERE m.workspace_id = $1 AND m.asset_id = ANY($2::uuid[]) AND m.project_id = ANY($3::uuid[])
    AND NOT EXISTS (SELECT FROM matched x WHERE x.project_id = m.project_id AND x.asset_id = m.asset_id)
  RETURNING m.project_id, m.asset_id
), added AS (
  INSERT INTO project_assets (workspace_id, project_id, asset_id)
  SELECT $1, project_id, asset_id FROM matched ORDER BY project_id, asset_id
  ON CONFLICT DO NOTHING
  RETURNING project_id, asset_id
)
SELECT project_id, asset_id, true AS is_added FROM added
UNION ALL
SELECT project_id, asset_id, false FROM removed
"""

_CAUSES: Final = """
SELECT a.id AS asset_id, (array_agg(h.id ORDER BY h.hops DESC))[1] AS run_id,
       coalesce(max(h.hops), 0)::int AS hops
FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) AS e (asset_id, service_id, finding_id, run_id)
LEFT JOIN asset_services s ON s.workspace_id = $1 AND s.id = e.service_id
JOIN assets a ON a.workspace_id = $1 AND a.id = coalesce(e.asset_id, s.asset_id)
LEFT JOIN vulnerabilities v ON v.workspace_id = $1 AND v.id = e.finding_id
LEFT JOIN job_histories h ON h.workspace_id = $1 AND h.id = coalesce(e.run_id, v.run_id, s.run_id, a.run_id)
GROUP BY a.id
"""

NEXT_DUE: Final = """
SELECT id, workspace_id, name, changed_at, looked_up_to FROM projects
WHERE deleted_at IS NULL AND due_at <= clock_timestamp()
ORDER BY due_at
LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED
"""

# What a person's change takes in is not what a run brought about, unless it was found since.
NEXT_ASSETS: Final = """
SELECT a.id AS asset_id, h.id AS run_id,
       CASE WHEN a.created_at < $3 THEN 0 ELSE coalesce(h.hops, 0)::int END AS hops
FROM (SELECT id, run_id, created_at FROM assets
      WHERE workspace_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $4) a
LEFT JOIN job_histories h ON h.workspace_id = $1 AND h.id = a.run_id
ORDER BY a.id
"""

_LOOKED: Final = f"""
UPDATE projects
SET looked_up_to = $2,
    due_at = CASE WHEN $2::uuid IS NULL
                  THEN clock_timestamp() + interval '{LOOK_AGAIN_H} hours' ELSE due_at END
WHERE id = $1
"""

_LOOK_AGAIN: Final = """
UPDATE projects p SET due_at = clock_timestamp(), looked_up_to = NULL
WHERE p.workspace_id = $1 AND p.deleted_at IS NULL
  AND (p.id = ANY($2::uuid[])
       OR EXISTS (SELECT FROM project_scopes s WHERE s.project_id = p.id AND s.kind = ANY($3::text[])))
"""


@dataclass(frozen=True, slots=True)
class About:
    """What an event is about: an asset, or a service of one, perhaps a finding; and the run that found it."""

    asset_id: UUID | None = None
    service_id: UUID | None = None
    finding_id: UUID | None = None
    run_id: UUID | None = None
    is_found: bool = False
    """The finding is new."""


async def take_in(conn: Connection, workspace_id: UUID, about: Sequence[About]) -> None:
    """Decides about the assets that events are about, in the transaction of the lane's turn."""
    projects = {row["id"]: row["name"] for row in await conn.fetch(_HOLD, workspace_id)}
    if not projects:
        return
    columns = zip(*((a.asset_id, a.service_id, a.finding_id, a.run_id) for a in about), strict=True)
    rows = await conn.fetch(_CAUSES, workspace_id, *map(list, columns))
    await _settle(conn, workspace_id, projects, rows)
    findings = [each.finding_id for each in about if each.is_found and each.finding_id is not None]
    await project_triggers.gather_findings(conn, workspace_id, findings)


async def look_again(
    conn: Connection, workspace_id: UUID, project_ids: Sequence[UUID], kinds: Sequence[str]
) -> None:
    """Has all assets compared with these projects, and with those that have rules of these kinds."""
    await conn.execute(_LOOK_AGAIN, workspace_id, list(project_ids), list(kinds))


async def evaluate_next(conn: Connection) -> bool:
    """Compares the next portion of assets with the project that is due first; False when none is.

    One transaction of the caller. Several may do so: each has a project of its own. Indexes: `projects_due`,
    the key of assets by workspace.
    """
    project = await conn.fetchrow(NEXT_DUE)
    if project is None:
        return False
    workspace_id, after = project["workspace_id"], project["looked_up_to"]
    rows = await conn.fetch(NEXT_ASSETS, workspace_id, after, project["changed_at"], PORTION)
    await _settle(conn, workspace_id, {project["id"]: project["name"]}, rows)
    reached = rows[-1]["asset_id"] if len(rows) == PORTION else None
    await conn.execute(_LOOKED, project["id"], reached)
    return True


async def _settle(
    conn: Connection, workspace_id: UUID, projects: Mapping[UUID, str], assets: Sequence[Record]
) -> None:
    """Writes who is in and who is not, and tells of what changed; `assets` with run and hops of each."""
    causes = {row["asset_id"]: Cause(row["run_id"], row["hops"]) for row in assets}
    changes = await conn.fetch(SETTLE, workspace_id, list(causes), list(projects))
    if not changes:
        return
    moment = (await conn.fetchval("SELECT clock_timestamp()")).isoformat()
    grouped: dict[tuple[UUID, bool], list[UUID]] = defaultdict(list)
    for row in changes:
        grouped[row["project_id"], row["is_added"]].append(row["asset_id"])
    told = [
        _changed(workspace_id, (which, projects[which], is_added), sorted(ids), (moment, causes))
        for (which, is_added), ids in sorted(grouped.items())
    ]
    await outbox.insert(conn, told)
    added = [(row["project_id"], row["asset_id"]) for row in changes if row["is_added"]]
    await project_triggers.gather_added(conn, workspace_id, added, causes)


def _changed(
    workspace_id: UUID,
    of: tuple[UUID, str, bool],
    asset_ids: Sequence[UUID],
    when: tuple[str, Mapping[UUID, Cause]],
) -> Envelope:
    project_id, name, is_added = of
    moment, causes = when
    leaves = EVENT_CATALOG.project.assets
    return envelope(
        leaves.added if is_added else leaves.removed,
        ProjectAssets(
            project_id=project_id, name=name, assets=len(asset_ids), sample=tuple(asset_ids[:SAMPLE])
        ),
        workspace_id=workspace_id,
        subject=names.project_subject(project_id),
        ordinal=moment,
        hops=max(causes[each].hops for each in asset_ids),
    )
