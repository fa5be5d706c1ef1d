"""Moving a target into an internal network, into another one, or out of any.

What waits goes with it: it is dispatched anew, for the workers of the place where the target is now. A target
with jobs in progress stays where it is until they have ended: what they find was seen in the old place.
The inventory stays with the target; what is not there any more is closed by the scans that do not see it.
"""

from typing import Final
from uuid import UUID

import asyncpg

from runlane import names
from runlane.db import nudges, outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.guards import IN_PROGRESS, LIVE_JOB
from runlane.db.networks import Reach, reach_of
from runlane.db.pool import Connection, Record
from runlane.errors import Conflict, NotFound
from runlane.tools.targets import parse_target

# The rows of runs before those of targets and jobs, as everybody does; whoever admits jobs holds the first.
_RUNS: Final = """
SELECT h.id FROM job_histories h
WHERE h.workspace_id = $1 AND h.closed_at IS NULL
  AND EXISTS (SELECT FROM run_targets r WHERE r.run_id = h.id AND r.target_id = $2)
ORDER BY h.id
"""

_HOLD_RUNS: Final = f"{_RUNS} FOR NO KEY UPDATE OF h"

# Not waited for: whoever merges results holds jobs, then pins their targets.
_HOLD: Final = """
SELECT id, kind, value, network_id, tags, created_at FROM targets
WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL
FOR UPDATE NOWAIT
"""

_JOBS: Final = f"""
SELECT id, status = {IN_PROGRESS} AS is_in_progress FROM jobs
WHERE run_id = ANY($1::uuid[]) AND {LIVE_JOB} AND target_id = $2
ORDER BY id
FOR UPDATE NOWAIT
"""

_MOVE: Final = """
UPDATE targets SET network_id = $2 WHERE id = $1
RETURNING id, kind, value, network_id, tags, created_at, clock_timestamp() AS moved_at
"""

_MOVE_JOBS: Final = "UPDATE jobs SET network_id = $2, dispatch_id = NULL WHERE id = ANY($1::uuid[])"


async def move_target(
    conn: Connection, workspace_id: UUID, target_id: UUID, network: str | None, act: Act
) -> dict[str, object]:
    """Puts a target into the network of this name or id, or into none. Repeated, it changes nothing.

    Reads live jobs of open runs about it only, by `jobs_live`.

    Raises:
        NotFound: `target.not_found`, `network.not_found`.
        Invalid: `target.address_refused`, it may not be a target there.
        Conflict: `target.duplicate`, it is a target there already; `target.busy`, jobs of it are in progress,
            a run about it begins, or others are at work on it at this moment.
    """
    reach = await reach_of(conn, workspace_id, network)
    runs = [row["id"] for row in await conn.fetch(_HOLD_RUNS, workspace_id, target_id)]
    held = await _hold(conn, _HOLD, workspace_id, target_id)
    if not held:
        raise NotFound("no such target", code="target.not_found")
    (target,) = held
    if target["network_id"] == reach.network_id:
        return dict(target)
    parse_target(target["value"], reach.cidrs, is_bound=reach.is_bound)
    if [row["id"] for row in await conn.fetch(_RUNS, workspace_id, target_id)] != runs:
        raise Conflict("a run about it begins or ends at this moment: try again", code="target.busy")
    jobs = await _hold(conn, _JOBS, runs, target_id)
    if any(job["is_in_progress"] for job in jobs):
        raise Conflict("jobs of it are in progress: wait for them or cancel them", code="target.busy")
    moved = await _move(conn, target_id, reach)
    await conn.execute(_MOVE_JOBS, [job["id"] for job in jobs], reach.network_id)
    await nudges.nudge_runs(conn, runs)
    deed = Deed(
        Action.TARGET_NETWORK,
        workspace_id,
        names.target_subject(target_id),
        ordinal=moved["moved_at"].isoformat(),
        value=str(reach.network_id) if reach.network_id else None,
        jobs=len(jobs),
    )
    await outbox.insert(conn, [acted(act, deed)])
    return dict(moved)


async def _hold(conn: Connection, statement: str, *arguments: object) -> list[Record]:
    try:
        return await conn.fetch(statement, *arguments)
    except asyncpg.LockNotAvailableError as error:
        raise Conflict("others are at work on it at this moment: try again", code="target.busy") from error


async def _move(conn: Connection, target_id: UUID, reach: Reach) -> Record:
    try:
        (row,) = await conn.fetch(_MOVE, target_id, reach.network_id)
    except asyncpg.UniqueViolationError as error:
        raise Conflict("it is a target there already", code="target.duplicate") from error
    return row
