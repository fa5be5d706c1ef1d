"""Limits: at most so many jobs in progress, and so many claims a minute, of a workspace or a tool set.

A limit's row is its lock: whoever dispatches or claims under it holds the row until its transaction ends, so
that two of them never use the same room. What a claim used is a row of `limit_claims`. It counts while its
attempt is in progress, whoever ends that, and towards the rate for a minute: nothing has to be given back.
Classes without a limit pay for none of this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.guards import IN_PROGRESS, LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.waiting import LimitUse

MINUTE_S: Final = 60
"""`per_minute` counts claims of the last so many seconds, whenever these are."""

LOOK_S: Final = 300.0
"""A step that a limit holds back is looked at again after this, should nobody call when there is room: each
look is half a dozen events in the history of a workflow that may wait for days."""

_CALL_S: Final = 10
"""A workflow that was called because there is room, and has not come by then, is passed over."""

_PRUNE_FROM: Final = 500
"""Rows of a limit that no longer count are deleted once there are so many."""


def covers(workspace: str, toolset: str) -> str:
    """`l` limits what these two expressions name."""
    return f"""(l.workspace_id IS NULL OR l.workspace_id = {workspace})
  AND (l.toolset IS NULL OR l.toolset = {toolset})"""


@dataclass(frozen=True, slots=True)
class Room:
    """What the limits of a class leave. `jobs` None: as many as you like."""

    jobs: int | None = None
    wait_s: float = LOOK_S
    """When to look again if that is nothing."""
    most: int | None = None
    """The lowest limit that counts here: batches are cut so that its room is filled evenly."""
    reached: str | None = None
    """Which limit leaves nothing, in words."""
    limit_ids: Sequence[UUID] = ()
    """What a claim is to be counted against."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A workflow that asks for room to dispatch jobs of a class. `priority` is that of its run."""

    workflow_id: str
    workspace_id: UUID
    toolset: str
    priority: int


_LOCK = f"""
SELECT l.id, l.workspace_id, l.toolset, l.max_in_progress, l.per_minute
FROM limits l
WHERE {covers("$1", "$2")}
ORDER BY l.id
FOR NO KEY UPDATE
"""

_USED = f"""
SELECT l.id, count(c.job_id)::int AS kept, count(j.id)::int AS running,
       count(*) FILTER (WHERE c.claimed_at > w.since)::int AS recent,
       extract(epoch FROM min(c.claimed_at) FILTER (WHERE c.claimed_at > w.since) - w.since)::float8 AS wait_s
FROM limits l
CROSS JOIN (SELECT statement_timestamp() - make_interval(secs => {MINUTE_S}) AS since) w
LEFT JOIN limit_claims c ON c.limit_id = l.id
LEFT JOIN jobs j ON j.id = c.job_id AND j.workspace_id = c.workspace_id AND j.attempt = c.attempt
  AND j.status = {IN_PROGRESS}
WHERE l.id = ANY($1::uuid[])
GROUP BY l.id, w.since
"""

_PRUNE = f"""
DELETE FROM limit_claims c
WHERE c.limit_id = $1 AND c.claimed_at < clock_timestamp() - make_interval(secs => {MINUTE_S})
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = c.job_id AND j.workspace_id = c.workspace_id
                    AND j.attempt = c.attempt AND j.status = {IN_PROGRESS})
"""

# Jobs that are out but not claimed yet: they will ask for room, so it is theirs. Those on a queue that nobody
# serves will not.
_ASKING = f"""
SELECT l.id, count(*)::int AS jobs
FROM limits l
JOIN dispatches d ON d.closed_at IS NULL
JOIN jobs j ON j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {PENDING}
WHERE l.id = ANY($1::uuid[]) AND {covers("j.workspace_id", "j.toolset")}
  AND EXISTS (
    SELECT FROM workers w
    WHERE w.status = 'online' AND w.deleted_at IS NULL AND j.toolset = ANY(w.toolsets)
      AND CASE WHEN d.task_queue LIKE '{names.SHARED_QUEUE_PREFIX}%' THEN w.scope = 'shared'
               ELSE w.workspace_id = j.workspace_id AND w.network_id IS NOT DISTINCT FROM j.network_id END)
GROUP BY l.id
"""

_FORGET = f"""
DELETE FROM limit_waiters
WHERE limit_id = ANY($1::uuid[]) AND nudged_at < clock_timestamp() - make_interval(secs => {_CALL_S})
"""

_FIRST = """
SELECT DISTINCT ON (limit_id) workflow_id FROM limit_waiters ORDER BY limit_id, priority, since
"""

_FIRST_AFTER = """
SELECT DISTINCT ON (limit_id) workflow_id FROM limit_waiters
WHERE EXISTS (SELECT FROM dispatches d JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
              WHERE d.id = ANY($1::uuid[]) AND s.closed_at IS NOT NULL)
ORDER BY limit_id, priority, since
"""

_AHEAD = """
SELECT o.workflow_id, min(o.priority) AS priority
FROM limit_waiters o
LEFT JOIN limit_waiters mine ON mine.limit_id = o.limit_id AND mine.workflow_id = $2
WHERE o.limit_id = ANY($1::uuid[]) AND o.workflow_id <> $2
  AND (o.priority, o.since) < ($3, coalesce(mine.since, 'infinity'))
GROUP BY o.workflow_id
ORDER BY min(o.priority), min(o.since)
"""

_CALL = """
UPDATE limit_waiters SET nudged_at = coalesce(nudged_at, clock_timestamp())
WHERE limit_id = ANY($1::uuid[]) AND workflow_id = ANY($2::text[])
"""

_WAIT = """
INSERT INTO limit_waiters (limit_id, workflow_id, priority)
SELECT l.id, $2, $3 FROM unnest($1::uuid[]) AS l (id)
ON CONFLICT (limit_id, workflow_id) DO UPDATE SET priority = excluded.priority, nudged_at = NULL
"""

_LEAVE = "DELETE FROM limit_waiters WHERE limit_id = ANY($1::uuid[]) AND workflow_id = $2"

_COUNT_CLAIMS = """
INSERT INTO limit_claims (limit_id, workspace_id, job_id, attempt)
SELECT l.id, $2, j.id, j.attempt
FROM unnest($1::uuid[]) AS l (id) CROSS JOIN unnest($3::uuid[], $4::int[]) AS j (id, attempt)
"""


async def room_to_claim(conn: Connection, workspace_id: UUID, toolset: str) -> Room:
    """How many jobs of a class may be claimed now; its limits stay locked until the transaction ends."""
    locked = await conn.fetch(_LOCK, workspace_id, toolset)
    return _least(locked, await _used(conn, locked), {}) if locked else Room()


async def room_to_dispatch(conn: Connection, asker: Asker) -> Room:
    """How many jobs of a class a workflow may dispatch now, besides those that are out already; as above.

    Workflows that found no room earlier, or have a higher priority, are asked to look and go first. One that
    does not come is passed over: its workflow may be gone.
    """
    locked = await conn.fetch(_LOCK, asker.workspace_id, asker.toolset)
    if not locked:
        return Room()
    ids = [row["id"] for row in locked]
    asking = await conn.fetch(_ASKING, ids)
    room = _least(locked, await _used(conn, locked), {row["id"]: row["jobs"] for row in asking})
    await conn.execute(_FORGET, ids)
    ahead = await conn.fetch(_AHEAD, ids, asker.workflow_id, asker.priority)
    if not ahead or not room.jobs:
        return room
    called = [row["workflow_id"] for row in ahead[: room.jobs]]
    await conn.execute(_CALL, ids, called)
    await nudges.nudge_unheld(conn, called)
    is_outranked = any(row["priority"] < asker.priority for row in ahead)
    left = 0 if is_outranked else max(0, room.jobs - len(ahead))
    return replace(room, jobs=left, reached=room.reached or f"{len(ahead)} runs come first under a limit")


async def call_first(conn: Connection) -> int:
    """Calls whoever is first in each line: jobs have ended of a run that will not ask for room again."""
    rows = await conn.fetch(_FIRST)
    return await nudges.nudge_unheld(conn, [row["workflow_id"] for row in rows]) if rows else 0


async def call_first_after(conn: Connection, dispatch_ids: Sequence[UUID]) -> int:
    """The same if the step of one of these batches is closed: whatever its jobs became, it asks no more."""
    rows = await conn.fetch(_FIRST_AFTER, list(dispatch_ids))
    return await nudges.nudge_unheld(conn, [row["workflow_id"] for row in rows]) if rows else 0


async def wait_in_line(conn: Connection, asker: Asker, room: Room) -> None:
    """Remembers that a workflow has jobs for which there is no room; its place is that of the first time."""
    await conn.execute(_WAIT, list(room.limit_ids), asker.workflow_id, asker.priority)


async def leave_line(conn: Connection, asker: Asker, room: Room) -> None:
    """Forgets that a workflow waits: it was given room, or has nothing to dispatch any more."""
    await conn.execute(_LEAVE, list(room.limit_ids), asker.workflow_id)


async def count_claims(
    conn: Connection, room: Room, workspace_id: UUID, claimed: Sequence[tuple[UUID, int]]
) -> None:
    """Counts jobs, with their attempts, that were claimed in the room that was found."""
    if room.limit_ids and claimed:
        ids, attempts = [job_id for job_id, _ in claimed], [attempt for _, attempt in claimed]
        await conn.execute(_COUNT_CLAIMS, list(room.limit_ids), workspace_id, ids, attempts)


_USES = f"""
SELECT l.id, l.workspace_id, l.toolset, l.max_in_progress, l.per_minute
FROM limits l
WHERE {covers("$1", "$2")}
ORDER BY l.id
"""


@dataclass(frozen=True, slots=True)
class Uses:
    """How much of each limit of a class is used up now."""

    per_minute: Sequence[LimitUse]
    in_progress: Sequence[LimitUse]


async def uses_of(conn: Connection, workspace_id: UUID, toolset: str) -> Uses:
    """Reads the limits of a class without holding anybody up."""
    rows = await conn.fetch(_USES, workspace_id, toolset)
    if not rows:
        return Uses((), ())
    used = {row["id"]: row for row in await conn.fetch(_USED, [row["id"] for row in rows])}
    return Uses(
        per_minute=[
            LimitUse(scope_of(r), used[r["id"]]["recent"], r["per_minute"]) for r in rows if r["per_minute"]
        ],
        in_progress=[
            LimitUse(scope_of(r), used[r["id"]]["running"], r["max_in_progress"])
            for r in rows
            if r["max_in_progress"]
        ],
    )


def scope_of(limit: Record) -> str:
    """What a limit is of, as a person says it."""
    if limit["workspace_id"] is None:
        return f"the tool set {limit['toolset']} everywhere"
    return f"the tool set {limit['toolset']}" if limit["toolset"] else "the workspace"


async def uses_of_limits(conn: Connection, limit_ids: Sequence[UUID]) -> Mapping[UUID, Mapping[str, int]]:
    """How much of each of these limits is used up now, by the names of the interface."""
    rows = await conn.fetch(_USED, list(limit_ids)) if limit_ids else []
    return {row["id"]: {"in_progress": row["running"], "last_minute": row["recent"]} for row in rows}


async def _used(conn: Connection, locked: Sequence[Record]) -> dict[UUID, Record]:
    used = {row["id"]: row for row in await conn.fetch(_USED, [row["id"] for row in locked])}
    for row in used.values():
        if row["kept"] - max(row["running"], row["recent"]) > _PRUNE_FROM:
            await conn.execute(_PRUNE, row["id"])
    return used


def _least(locked: Sequence[Record], used: dict[UUID, Record], asking: dict[UUID, int]) -> Room:
    rooms = [_room(limit, used[limit["id"]], asking.get(limit["id"], 0)) for limit in locked]
    least = min(rooms, key=lambda room: room.jobs if room.jobs is not None else 0)
    return Room(
        jobs=least.jobs,
        wait_s=least.wait_s,
        most=min((room.most for room in rooms if room.most is not None), default=None),
        reached=least.reached,
        limit_ids=[limit["id"] for limit in locked],
    )


def _room(limit: Record, used: Record, asking: int) -> Room:
    in_progress, per_minute = limit["max_in_progress"], limit["per_minute"]
    running = in_progress - used["running"] - asking if in_progress else None
    claims = per_minute - used["recent"] - asking if per_minute else None
    jobs = max(0, min(each for each in (running, claims) if each is not None))
    most = min(each for each in (in_progress, per_minute) if each is not None)
    if jobs:
        return Room(jobs, most=most)
    if claims is not None and claims <= 0:
        wait_s = max(1.0, used["wait_s"] or 0.0) if used["recent"] else LOOK_S
        told = f"{per_minute} of {per_minute} claimed in the last minute for {scope_of(limit)}"
        return Room(0, wait_s, most, told)
    return Room(0, LOOK_S, most, f"{in_progress} of {in_progress} in progress for {scope_of(limit)}")
