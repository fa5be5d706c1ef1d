"""Runs that what happens in a project starts: gathered by the lane, started as all others (`triggers`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.gathering import EVENT, MAX_HOPS, ON, TOO_FAR, fits
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.automation_payloads import ProjectTriggerMatched


@dataclass(frozen=True, slots=True)
class Cause:
    """The run that brought something about, and how far it is from a person; a person did: none, and 0."""

    run_id: UUID | None
    hops: int


def _note(members: str, more: str = "") -> str:
    return f"""
INSERT INTO gathered_targets (workspace_id, definition_id, hops, event, rule, run_id, target_id, project_id)
SELECT DISTINCT $1::uuid, d.id, least(m.hops + 1, {TOO_FAR}), $2::text, o.rule, m.run_id, t.id, p.id
FROM {members}
JOIN projects p ON p.id = m.project_id
JOIN assets a ON a.workspace_id = $1 AND a.id = m.asset_id
JOIN targets t ON t.id = a.target_id AND t.deleted_at IS NULL
JOIN workflow_definitions d ON d.workspace_id = $1 AND d.deleted_at IS NULL AND d.body ? 'on'
CROSS JOIN LATERAL {ON}
WHERE {EVENT} = $2 AND {fits("projects", "p.name")} {more}
RETURNING definition_id, project_id, hops
"""


_NOTE_ADDED: Final = _note(
    "unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::int[]) AS m (project_id, asset_id, run_id, hops)"
)

# Entries without the filter are noted where the finding is merged.
_NOTE_FOUND: Final = _note(
    """(
  SELECT m.project_id, v.asset_id, h.id AS run_id, coalesce(h.hops, 0) AS hops, v.tool_id, v.severity
  FROM vulnerabilities v
  JOIN project_assets m ON m.workspace_id = $1 AND m.asset_id = v.asset_id
  LEFT JOIN job_histories h ON h.workspace_id = $1 AND h.id = v.run_id
  WHERE v.workspace_id = $1 AND v.id = ANY($3::uuid[])) m""",
    f"""AND o.entry ? 'projects'
  AND {fits("severity", "m.severity")} AND {fits("tools", "m.tool_id")}""",
)

_NAMES: Final = "SELECT id, name FROM projects WHERE id = ANY($1::uuid[])"


async def gather_added(
    conn: Connection,
    workspace_id: UUID,
    added: Sequence[tuple[UUID, UUID]],
    causes: Mapping[UUID, Cause],
) -> None:
    """Notes that assets came into projects (pairs of ids), and tells what that starts."""
    if not added:
        return
    event = EVENT_CATALOG.project.assets.added.name
    which = ([project for project, _ in added], [asset for _, asset in added])
    of = [causes[asset] for _, asset in added]
    rows = await conn.fetch(
        _NOTE_ADDED, workspace_id, event, *which, [each.run_id for each in of], [each.hops for each in of]
    )
    await _tell(conn, workspace_id, event, rows)


async def gather_findings(conn: Connection, workspace_id: UUID, finding_ids: Sequence[UUID]) -> None:
    """Notes new findings on assets that are in projects, and tells what they start."""
    if finding_ids:
        event = EVENT_CATALOG.vulnerability.detected.name
        await _tell(
            conn, workspace_id, event, await conn.fetch(_NOTE_FOUND, workspace_id, event, list(finding_ids))
        )


async def _tell(conn: Connection, workspace_id: UUID, cause: str, rows: Sequence[Record]) -> None:
    pairs = sorted({(row["project_id"], row["definition_id"]) for row in rows if row["hops"] <= MAX_HOPS})
    if not pairs:
        return
    found = await conn.fetch(_NAMES, [project_id for project_id, _ in pairs])
    name_of = {row["id"]: row["name"] for row in found}
    moment = (await conn.fetchval("SELECT clock_timestamp()")).isoformat()
    told = [
        envelope(
            EVENT_CATALOG.project.trigger.matched,
            ProjectTriggerMatched(
                project_id=project_id, name=name_of[project_id], cause=cause, definition_id=definition_id
            ),
            workspace_id=workspace_id,
            subject=names.project_subject(project_id),
            ordinal=f"{definition_id}/{cause}/{moment}",
        )
        for project_id, definition_id in pairs
    ]
    await outbox.insert(conn, told)
