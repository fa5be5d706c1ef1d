"""Preparing: the assets that the targets of a run have by themselves, before any scan.

A run of few targets is prepared when it is written. Of a large one the rest is done chunk by chunk when its
jobs are admitted, so that neither a request nor a transaction grows with the selection.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane.db import gathering, outbox
from runlane.db.gathering import Finder
from runlane.db.inventory import ensure_primary_assets
from runlane.db.pool import Connection

CHUNK: Final = 1_000
"""Targets of one transaction."""


def is_unprepared(run: str) -> str:
    """SQL: whether targets of a run (an expression) are still to be prepared. Index: `run_targets_new`."""
    return f"EXISTS (SELECT FROM run_targets p WHERE p.run_id = {run} AND p.is_new)"


def _take(which: str) -> str:
    return f"""
WITH chosen AS MATERIALIZED ({which})
UPDATE run_targets r SET is_new = false
FROM chosen
WHERE r.run_id = $1 AND r.target_id = chosen.target_id AND r.is_new
RETURNING r.target_id, r.workspace_id
"""


_TAKE_SOME: Final = _take(
    "SELECT target_id FROM run_targets WHERE run_id = $1 AND is_new ORDER BY target_id LIMIT $2 FOR UPDATE"
)
_TAKE_THESE: Final = _take("SELECT unnest($2::uuid[]) AS target_id")


async def prepare_some(conn: Connection, run_id: UUID) -> int:
    """Prepares up to 1,000 targets of a run, with an event for each new asset; answers how many."""
    return await _prepare(conn, run_id, _TAKE_SOME, CHUNK)


async def prepare_these(conn: Connection, run_id: UUID, target_ids: Sequence[UUID]) -> int:
    """Prepares those of these targets that are not yet; answers how many."""
    return await _prepare(conn, run_id, _TAKE_THESE, list(target_ids))


async def _prepare(conn: Connection, run_id: UUID, statement: str, which: object) -> int:
    rows = await conn.fetch(statement, run_id, which)
    if rows:
        targets = sorted(row["target_id"] for row in rows)
        workspace_id = rows[0]["workspace_id"]
        found = await ensure_primary_assets(conn, workspace_id, targets, run_id=run_id)
        await outbox.insert(conn, found)
        await gathering.gather_found(conn, Finder(workspace_id, run_id), found)
    return len(rows)
