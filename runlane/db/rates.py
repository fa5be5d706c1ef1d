"""Rates of targets, networks and workspaces: what is claimed is given a share, and never more than there is.

A share is a row for a claim. It counts while its attempt is in progress, whoever ends that, and a moment
longer if the host may not have heard of the end. Claims of one workspace divide one after the other.
Source: a rate holds across workers and jobs, so it is divided where all of them ask.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges, scope
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection, Record
from runlane.rates import PACED, SILENT, Division, Rate
from runlane.tools.workloads import need_per_s
from runlane.waiting import LimitUse

LINGER_S: Final = 30
"""A lost or withdrawn attempt keeps its share so long: its host may be cut off and go on sending."""

LOOK_S: Final = 60.0
"""A step that rates hold back is looked at again after this, should nobody call it when a share is free."""

UNPACED: Final = "rate_unsupported"
"""Reason of a job that was skipped because its tool cannot keep to the rate that covers it."""


def apply_in(workspace: str, tool: str) -> str:
    """SQL: whether rates count for jobs of a tool (expressions)."""
    silent = ", ".join(f"'{each}'" for each in sorted(SILENT))
    return f"""({tool} NOT IN ({silent})
       AND EXISTS (SELECT FROM rates r WHERE r.workspace_id IS NULL OR r.workspace_id = {workspace}))"""


_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('rates/' || $1::uuid::text, 0))"

_COUNTS: Final = f"""(a.ended_at IS NULL OR a.outcome IN ('lost', 'released', 'cancelled')
       AND a.ended_at > clock_timestamp() - make_interval(secs => {LINGER_S}))"""

_ATTEMPT: Final = "a.job_id = s.job_id AND a.attempt = s.attempt"

_PRUNE: Final = f"""
DELETE FROM rate_shares s
WHERE s.workspace_id = $1 AND NOT EXISTS (SELECT FROM job_attempts a WHERE {_ATTEMPT} AND {_COUNTS})
"""

_RATES: Final = """
SELECT target_id, network_id, workspace_id, per_second FROM rates
WHERE workspace_id = $1 OR workspace_id IS NULL
"""

_USED: Final = f"""
SELECT s.target_id, s.network_id, sum(s.per_second)::int AS used
FROM rate_shares s JOIN job_attempts a ON {_ATTEMPT}
WHERE s.workspace_id = $1 AND {_COUNTS}
GROUP BY 1, 2
"""

# What is out and not claimed yet will ask for a share. On a queue that nobody serves it will not.
_ASKING: Final = f"""
SELECT j.target_id, j.network_id, count(*)::int AS jobs
FROM dispatches d
JOIN jobs j ON j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {PENDING}
WHERE d.workspace_id = $1 AND d.closed_at IS NULL
  AND EXISTS (SELECT FROM workers w
              WHERE w.status = 'online' AND w.deleted_at IS NULL AND j.toolset = ANY(w.toolsets)
                AND (w.workspace_id = d.workspace_id OR w.scope = 'shared'))
GROUP BY 1, 2
"""

_CONFIG: Final = "SELECT config FROM run_steps WHERE run_id = $1 AND step_id = $2"

_CANDIDATES: Final = f"""
SELECT id, run_id, step_id, target_id, network_id, tool_id FROM jobs
WHERE dispatch_id = $1 AND completed_at IS NULL AND status = {PENDING}
ORDER BY priority, created_at, id
FOR UPDATE SKIP LOCKED
"""

_GIVE_BACK: Final = f"""
UPDATE jobs SET dispatch_id = NULL WHERE id = ANY($1::uuid[]) AND dispatch_id = $2 AND status = {PENDING}
"""

_WRITE: Final = """
INSERT INTO rate_shares (job_id, attempt, workspace_id, target_id, network_id, per_second)
SELECT j.id, j.attempt, j.workspace_id, j.target_id, j.network_id, u.per_second
FROM unnest($1::uuid[], $2::int[]) AS u (id, per_second) JOIN jobs j ON j.id = u.id
ON CONFLICT DO NOTHING
"""

_SHARES: Final = """
SELECT s.job_id, s.per_second FROM rate_shares s
JOIN unnest($1::uuid[], $2::int[]) AS u (job_id, attempt) USING (job_id, attempt)
"""

_WAITING_RUNS: Final = """
SELECT h.id FROM job_histories h
WHERE h.closed_at IS NULL AND h.blocked_reason IS NOT NULL AND h.workspace_id IN (
  SELECT d.workspace_id FROM dispatches d
  WHERE d.id = ANY($1::uuid[]) AND EXISTS (SELECT FROM rate_shares s WHERE s.workspace_id = d.workspace_id))
ORDER BY h.id
"""

_NAMES: Final = """
SELECT id, value AS name FROM targets WHERE workspace_id = $1 AND id = ANY($2::uuid[])
UNION ALL SELECT id, name FROM internal_networks WHERE workspace_id = $1 AND id = ANY($2::uuid[])
"""


@dataclass(slots=True)
class Room:
    """What the rates of a workspace leave, for a tool."""

    workspace_id: UUID
    rates: dict[Hashable, Rate] = field(default_factory=dict)
    of_each_target: int | None = None
    """Rate of the platform: for every target."""
    is_paced: bool = True
    """Whether the tool keeps to a share."""
    need: int = 1
    """What a job of the step must be given a second to end within its limit."""

    def keys_of(self, job: Mapping[str, object] | Record) -> list[Hashable]:
        """What has a rate that covers a job."""
        target_id = job["target_id"]
        if self.of_each_target is not None and target_id is not None:
            self.rates.setdefault(target_id, Rate(self.of_each_target))
        return [target_id, job["network_id"], self.workspace_id]

    @property
    def division(self) -> Division:
        """What may be given out."""
        return Division(self.rates, self.need)

    def closed(self) -> list[UUID]:
        """Targets and networks, or the workspace, of which no job may begin now."""
        return [key for key in self.division.full() if isinstance(key, UUID)] if self.is_paced else []

    def fitting(self, rows: Sequence[Record]) -> list[Record]:
        """Those of these jobs that may begin together, in their order."""
        if not self.is_paced:
            return list(rows)
        division = self.division
        return [row for row in rows if division.give(self.keys_of(row)) != 0]


async def room_of(
    conn: Connection, workspace_id: UUID, tool_id: str, step: tuple[UUID, str] | None = None, *, asking: bool
) -> Room:
    """What is left of the rates of a workspace; `asking`: without what is out and will be claimed.

    `step`: the run and the step whose jobs ask; it says how much they need.
    """
    room = Room(workspace_id, is_paced=tool_id in PACED)
    if step is not None:
        room.need = need_per_s(tool_id, await conn.fetchval(_CONFIG, *step))
    targets: list[UUID] = []
    for row in await conn.fetch(_RATES, workspace_id):
        if row["workspace_id"] is None:
            room.of_each_target = row["per_second"]
        else:
            room.rates[row["target_id"] or row["network_id"] or workspace_id] = Rate(row["per_second"])
            targets += [row["target_id"]] if row["target_id"] else []
    for target_id in targets if room.of_each_target else ():
        rate = room.rates[target_id]
        rate.per_second = min(rate.per_second, room.of_each_target or rate.per_second)
    for row in await conn.fetch(_USED, workspace_id):
        for key in room.keys_of(row):
            if key in room.rates:
                room.rates[key].used += row["used"]
    if asking:
        division = room.division
        for row in await conn.fetch(_ASKING, workspace_id):
            for _ in range(row["jobs"]):
                if not division.give(room.keys_of(row)):
                    break
    return room


async def share_out(
    conn: Connection, workspace_id: UUID, dispatch_id: UUID, most: int
) -> Mapping[UUID, int | None]:
    """The first jobs of a batch, up to so many, that may be claimed now, each with its share; None: no rate.

    Jobs for which nothing is left lose their dispatch, uncharged; jobs of a tool that cannot keep to a rate
    are skipped. Nothing is given until `keep_shares` writes it; claims of the workspace wait until then, so
    call both in one transaction. Uses `jobs_dispatched`.
    """
    await conn.execute(_LOCK, workspace_id)
    await conn.execute(_PRUNE, workspace_id)
    rows = await conn.fetch(_CANDIDATES, dispatch_id)
    if not rows:
        return {}
    step = (rows[0]["run_id"], rows[0]["step_id"])
    room = await room_of(conn, workspace_id, rows[0]["tool_id"], step, asking=False)
    keys = {row["id"]: room.keys_of(row) for row in rows}
    division = room.division
    if not room.is_paced:
        refused = {job_id for job_id, of in keys.items() if division.covers(of)}
        await scope.skip_jobs(conn, sorted(refused), UNPACED)
        return dict.fromkeys(keys.keys() - refused)
    shares: dict[UUID, int | None] = {}
    held: list[UUID] = []
    for job_id, of in keys.items():
        if len(shares) == most:
            break
        share = division.give(of)
        if share == 0:
            held.append(job_id)
        else:
            shares[job_id] = share
    if held:
        await conn.execute(_GIVE_BACK, held, dispatch_id)
    return shares


async def keep_shares(
    conn: Connection, shares: Mapping[UUID, int | None], claimed: Sequence[tuple[UUID, int]]
) -> Mapping[UUID, int]:
    """Writes the shares of jobs, with their attempts, that were claimed; answers those that they have.

    Harmless when repeated: an attempt keeps what it was given first.
    """
    ids, attempts = [job_id for job_id, _ in claimed], [attempt for _, attempt in claimed]
    given = {job_id: share for job_id in ids if (share := shares.get(job_id)) is not None}
    if given:
        await conn.execute(_WRITE, list(given), list(given.values()))
    rows = await conn.fetch(_SHARES, ids, attempts)
    return {row["job_id"]: row["per_second"] for row in rows}


async def call_waiting(conn: Connection, dispatch_ids: Sequence[UUID]) -> int:
    """Asks the runs that wait in the workspaces of these batches to look: shares of theirs are free again."""
    rows = await conn.fetch(_WAITING_RUNS, list(dispatch_ids))
    return await nudges.nudge_unheld(conn, [names.run_workflow_id(row["id"]) for row in rows]) if rows else 0


async def uses_of(conn: Connection, workspace_id: UUID) -> Mapping[UUID, LimitUse]:
    """Rates that leave nothing now, by target, network or workspace."""
    if not await conn.fetchval(
        "SELECT EXISTS (SELECT FROM rates WHERE workspace_id = $1 OR workspace_id IS NULL)", workspace_id
    ):
        return {}
    room = await room_of(conn, workspace_id, next(iter(PACED)), asking=False)
    closed = room.closed()
    said = {row["id"]: row["name"] for row in await conn.fetch(_NAMES, workspace_id, closed)}
    return {
        key: LimitUse(said.get(key, "the workspace"), room.rates[key].used, room.rates[key].per_second)
        for key in closed
    }


def reached(uses: Mapping[UUID, LimitUse]) -> list[str]:
    """Rates that leave nothing, in words, most first; a few stand for many."""
    texts = [f"{use.used} of {use.most} a second given out for {use.scope}" for use in uses.values()]
    return sorted(Counter(texts))[:5]
