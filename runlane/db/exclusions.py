"""The rows of exclusions: who excluded what, and why. What they do to jobs: `runlane.db.scope`.

A new one counts at once: pending jobs that it covers are skipped, those in progress are cancelled and their
workers told. Removing one brings no job back; a later run has them again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import cancel, nudges, outbox, scope
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.db.workspaces import concerned_by
from runlane.errors import Conflict, NotFound
from runlane.events import Envelope
from runlane.tools.exclusions import ExclusionKind, parse_exclusion

MAX_EXCLUSIONS: Final = 500
"""Of a workspace, and of the platform: tools are given all of them with each batch."""


@dataclass(frozen=True, slots=True)
class NewExclusion:
    """What is not to be scanned. `workspace_id` None: in no workspace at all."""

    workspace_id: UUID | None
    kind: ExclusionKind
    value: str
    target_id: UUID | None = None


_COLUMNS: Final = "id, workspace_id, target_id, kind, value, reason, created_by, created_at"

# Additions of one scope follow each other, so that none is counted twice or forgotten.
_LOCK: Final = """
SELECT pg_advisory_xact_lock(hashtextextended('exclusions/' || coalesce($1::uuid::text, ''), 0))
"""

_COUNT: Final = "SELECT count(*) FROM exclusions WHERE workspace_id IS NOT DISTINCT FROM $1"

_SAME: Final = f"""
SELECT {_COLUMNS} FROM exclusions
WHERE workspace_id IS NOT DISTINCT FROM $1 AND target_id IS NOT DISTINCT FROM $2 AND kind = $3 AND value = $4
"""

_INSERT: Final = f"""
INSERT INTO exclusions (workspace_id, target_id, kind, value, reason, created_by)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING {_COLUMNS}
"""

_LIST: Final = f"""
SELECT {_COLUMNS} FROM exclusions
WHERE workspace_id = $1 OR workspace_id IS NULL
ORDER BY workspace_id NULLS FIRST, target_id NULLS FIRST, kind, value
"""

_REMOVE: Final = f"""
DELETE FROM exclusions WHERE id = $1 AND workspace_id IS NOT DISTINCT FROM $2 RETURNING {_COLUMNS}
"""

_IS_TARGET: Final = """
SELECT EXISTS (SELECT FROM targets WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL)
"""

_COVERED: Final = f"""
SELECT j.id, j.workspace_id, j.run_id, j.status = {PENDING} AS is_pending
FROM exclusions x
JOIN jobs j ON j.{LIVE_JOB} AND {scope.covers("j")}
WHERE x.id = $1
ORDER BY j.workspace_id, j.id
"""


async def add_exclusion(conn: Connection, wanted: NewExclusion, act: Act) -> Mapping[str, object]:
    """Excludes something from now on, in one transaction of the caller. Repeated, it changes nothing.

    Raises:
        Invalid: `exclusion.domain`, `.host`, `.network`, `.port`: the value is not of its kind.
        NotFound: `target.not_found`.
        Conflict: `exclusion.too_many`.
    """
    parsed = parse_exclusion(wanted.kind, wanted.value)
    if wanted.target_id and not await conn.fetchval(_IS_TARGET, wanted.workspace_id, wanted.target_id):
        raise NotFound("no such target", code="target.not_found")
    await conn.execute(_LOCK, wanted.workspace_id)
    where = (wanted.workspace_id, wanted.target_id, parsed.kind, parsed.value)
    same = await conn.fetchrow(_SAME, *where)
    if same is not None:
        return {**same, "jobs": 0}
    if await conn.fetchval(_COUNT, wanted.workspace_id) >= MAX_EXCLUSIONS:
        raise Conflict(f"there are {MAX_EXCLUSIONS} exclusions already", code="exclusion.too_many")
    (row,) = await conn.fetch(_INSERT, *where, act.clean_reason, act.name)
    jobs = await _end_covered(conn, row["id"], act)
    await outbox.insert(conn, await _deeds(conn, row, act, Action.EXCLUSION, jobs))
    return {**row, "jobs": sum(jobs.values())}


async def remove_exclusion(
    conn: Connection, workspace_id: UUID | None, exclusion_id: UUID, act: Act
) -> Mapping[str, object]:
    """Removes an exclusion; one of the platform is not one of a workspace.

    Raises:
        NotFound: `exclusion.not_found`.
    """
    row = await conn.fetchrow(_REMOVE, exclusion_id, workspace_id)
    if row is None:
        raise NotFound("no such exclusion", code="exclusion.not_found")
    await outbox.insert(conn, await _deeds(conn, row, act, Action.EXCLUSION_REMOVE, {}))
    return dict(row)


async def list_exclusions(conn: Connection, workspace_id: UUID | None) -> Sequence[Mapping[str, object]]:
    """Exclusions that count in a workspace; None: those of the platform."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def _end_covered(conn: Connection, exclusion_id: UUID, act: Act) -> dict[UUID, int]:
    """Ends the live jobs that it covers and says how many in which workspace. Runs are locked before jobs."""
    rows = await conn.fetch(_COVERED, exclusion_id)
    if not rows:
        return {}
    await nudges.nudge_runs(conn, sorted({row["run_id"] for row in rows}))
    await scope.skip_jobs(conn, [row["id"] for row in rows if row["is_pending"]])
    ended: dict[UUID, int] = {}
    why = Act(act.actor, act.name, scope.OUT_OF_SCOPE)
    for workspace_id, jobs in groupby(rows, key=lambda row: row["workspace_id"]):
        ids = [row["id"] for row in jobs]
        await cancel.cancel_jobs(conn, workspace_id, ids, why, cause=cancel.CAUSE_SCOPE)
        ended[workspace_id] = len(ids)
    return ended


async def _deeds(
    conn: Connection, row: Record, act: Act, action: Action, jobs: Mapping[UUID, int]
) -> list[Envelope]:
    """Says who did it in each workspace that it concerns."""
    workspaces = await concerned_by(conn, row["workspace_id"])
    return [
        acted(
            act,
            Deed(
                action,
                each,
                names.exclusion_subject(row["id"]),
                ordinal=str(each),
                value=f"{row['kind']} {row['value']}",
                jobs=jobs.get(each, 0),
            ),
        )
        for each in workspaces
    ]
