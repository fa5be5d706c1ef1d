"""Claim: a worker takes the jobs of one dispatch, as many as it has room for.

One transaction: lock the eligible rows in dispatch order, mark the batch in one update, remember the attempt.
What is eligible is decided in the same query, so an ineligible row never blocks those behind it.
Source: Job registry, Claiming.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from runlane import names
from runlane.db import blackouts, connectors, limits, outbox, pauses, rates, scope, sharing
from runlane.db.guards import IN_PROGRESS, PENDING, job_may
from runlane.db.limits import Room
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobStarted
from runlane.jobs import CLAIM_CAP, JOBS, UNCLAIMED_DELAY, JobVerb
from runlane.tools import Toolset


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who claims what. `claim_key` names the activity task: repeat it and get the same answer."""

    dispatch_id: UUID
    claim_key: str
    worker_id: UUID
    incarnation: UUID
    slots: int


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """One job in the worker's hand. `spec` is the target object of the tool stream."""

    job_id: UUID
    attempt: int
    spec: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The jobs of one claim; empty when nothing of the dispatch is runnable by this worker now."""

    dispatch_id: UUID
    tool_id: str | None = None
    category: str | None = None
    run_id: UUID | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the tool for every job of the batch, and the platform's: `allow`, `bound`, `deny` …"""
    connector: Mapping[str, object] | None = None
    """Manifest of a tool that is one; the host reads it again."""
    jobs: Sequence[ClaimedJob] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of the secrets that the options refer to, for the worker alone."""


_TOOL_SET = "t.enabled AND t.toolset = ANY(w.toolsets)"
_WORKSPACE = "(b.is_own OR (b.is_shared AND NOT j.own_only))"
_NETWORK = "b.network_id IS NOT DISTINCT FROM j.network_id"
_NOT_PAUSED = f"NOT (b.has_pauses AND {pauses.is_paused('j.workspace_id', 'j.run_id', 'j.toolset')})"
_IN_SCOPE = f"NOT (b.has_exclusions AND {scope.is_excluded('j')})"
_RUNNABLE_SHAPE = "j.target_id IS NOT NULL AND j.spec IS NOT NULL"

# Calls with one key follow each other: the second one sees what the first one was given.
# A shared worker stands in the platform's network, where a workspace has no networks of its own; one that is
# bound to a network contacts nothing else.
_BEGIN = f"""
SELECT pg_advisory_xact_lock(hashtextextended($2, 0)), d.workspace_id, d.task_queue, t.toolset, s.tool_id,
       t.wall_s, s.closed_at IS NULL AS is_open, s.config, d.size, coalesce(n.cidrs, '{{}}') AS cidrs,
       CASE WHEN w.scope = 'shared' OR w.network_id IS NOT NULL THEN '{{}}' ELSE ws.allowed_networks END
         AS allowed_networks, w.network_id IS NOT NULL AS is_bound,
       EXISTS (SELECT FROM limits l WHERE {limits.covers("d.workspace_id", "t.toolset")}) AS is_limited,
       {scope.any_in("d.workspace_id")} AS has_exclusions,
       EXISTS (SELECT FROM blackout_windows b WHERE b.workspace_id = d.workspace_id) AS has_windows,
       {rates.apply_in("d.workspace_id", "s.tool_id")} AS has_rates
FROM dispatches d
JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
JOIN tools t ON t.id = s.tool_id
JOIN workspaces ws ON ws.id = d.workspace_id
LEFT JOIN workers w ON w.id = $3
LEFT JOIN internal_networks n ON n.id = w.network_id
WHERE d.id = $1
"""

# What is the same for every job of the batch is asked once, and rules of which there are none cost no job.
_CLAIM = f"""
WITH batch AS MATERIALIZED (
  SELECT s.tool_id, w.network_id, w.workspace_id = d.workspace_id AS is_own,
         w.scope = 'shared' AND ws.allow_shared AS is_shared,
         {pauses.any_in("d.workspace_id")} AS has_pauses, {scope.any_in("d.workspace_id")} AS has_exclusions
  FROM dispatches d
  JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
  JOIN tools t ON t.id = s.tool_id
  JOIN workspaces ws ON ws.id = d.workspace_id
  JOIN workers w ON w.id = $2 AND w.incarnation = $3 AND w.status = 'online' AND w.deleted_at IS NULL
  WHERE d.id = $1 AND {_TOOL_SET}
    AND NOT EXISTS (SELECT FROM job_attempts a WHERE a.dispatch_id = $1 AND a.claim_key = $5)
), eligible AS (
  SELECT j.id
  FROM batch b
  JOIN jobs j ON j.tool_id = b.tool_id
  WHERE j.dispatch_id = $1 AND j.completed_at IS NULL AND {job_may(JobVerb.CLAIM, "j")}
    AND {_WORKSPACE}
    AND {_NETWORK}
    AND {_NOT_PAUSED}
    AND {_RUNNABLE_SHAPE}
    AND {_IN_SCOPE}
    AND ($6::uuid[] IS NULL OR j.id = ANY($6))
  ORDER BY j.priority, j.created_at, j.id
  LIMIT $4
  FOR UPDATE OF j SKIP LOCKED
), claimed AS (
  UPDATE jobs
  SET status = '{JOBS.target_of(JobVerb.CLAIM)}', attempt = attempt + 1, worker_id = $2,
      picked_at = clock_timestamp()
  FROM eligible
  WHERE jobs.id = eligible.id
  RETURNING jobs.id, jobs.workspace_id, jobs.run_id, jobs.step_id, jobs.tool_id, jobs.category, jobs.attempt,
            jobs.spec, jobs.target_id, jobs.priority, jobs.created_at
), remembered AS (
  INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation, claim_key)
  SELECT id, attempt, workspace_id, $1, $2, $3, $5 FROM claimed
)
SELECT * FROM claimed ORDER BY priority, created_at, id
"""

_CLAIMED_BEFORE = f"""
SELECT j.id, j.workspace_id, j.run_id, j.step_id, j.tool_id, j.category, j.attempt, j.spec,
       j.target_id
FROM job_attempts a
JOIN jobs j ON j.id = a.job_id AND j.attempt = a.attempt AND j.status = {IN_PROGRESS}
WHERE a.dispatch_id = $1 AND a.claim_key = $2 AND a.worker_id = $3 AND a.incarnation = $4
  AND a.staged_at IS NULL AND a.ended_at IS NULL
ORDER BY j.priority, j.created_at, j.id
"""

# A row that somebody holds is left to them, or to the end of the batch: the claimed rows are locked by now,
# and waiting for another while holding them is how two transactions wait for each other.
_GIVE_UP_REST = f"""
UPDATE jobs SET dispatch_id = NULL, due_at = greatest(due_at, clock_timestamp() + $2)
WHERE (id, workspace_id) IN (
  SELECT id, workspace_id FROM jobs
  WHERE dispatch_id = $1 AND completed_at IS NULL AND status = {PENDING}
  FOR UPDATE SKIP LOCKED
)
"""


async def claim(conn: Connection, request: ClaimRequest) -> ClaimAnswer:
    """Claims up to `slots` jobs of a dispatch (never more than 100), in one transaction of the caller.

    Members that are not granted lose their dispatch in the same transaction and are dispatched anew,
    uncharged; in a moment, if none was granted. No job is ever claimed twice at one attempt: the row lock
    decides, and the rows of limits that no more are in progress than there may be. Uses `jobs_dispatched`.
    """
    begun = await conn.fetchrow(_BEGIN, request.dispatch_id, request.claim_key, request.worker_id)
    if begun is None:
        return ClaimAnswer(request.dispatch_id)
    room = await _room(conn, request, begun)
    await _take_out(conn, request.dispatch_id, begun)
    shares: Mapping[UUID, int | None] | None = None
    if begun["has_rates"]:
        shares = await rates.share_out(conn, begun["workspace_id"], request.dispatch_id, room.jobs or 0)
    within = None if shares is None else list(shares)
    whose = (request.dispatch_id, request.worker_id, request.incarnation)
    rows = await conn.fetch(_CLAIM, *whose, room.jobs, request.claim_key, within)
    await limits.count_claims(
        conn, room, begun["workspace_id"], [(row["id"], row["attempt"]) for row in rows]
    )
    if not rows:
        rows = await conn.fetch(
            _CLAIMED_BEFORE, request.dispatch_id, request.claim_key, request.worker_id, request.incarnation
        )
        if not rows:
            await conn.execute(_GIVE_UP_REST, request.dispatch_id, UNCLAIMED_DELAY)
            return ClaimAnswer(request.dispatch_id)
    else:
        await outbox.insert(conn, [_started(row, request.worker_id) for row in rows])
    if len(rows) < begun["size"]:
        await conn.execute(_GIVE_UP_REST, request.dispatch_id, timedelta(0))
    targets = [row["target_id"] for row in rows] if begun["has_exclusions"] else []
    denied = await scope.denied(conn, begun["workspace_id"], targets) if targets else {}
    answer = _answer(request, rows, begun, denied)
    if shares is not None:
        given = await rates.keep_shares(conn, shares, [(row["id"], row["attempt"]) for row in rows])
        answer = replace(answer, jobs=[_paced(job, given) for job in answer.jobs])
    if begun["toolset"] != Toolset.CONTAINER:
        return answer
    return replace(answer, connector=await connectors.manifest_of(conn, begun["tool_id"]))


async def _take_out(conn: Connection, dispatch_id: UUID, begun: Record) -> None:
    """Takes what is excluded, or may not begin now, out of a batch."""
    if begun["has_exclusions"]:
        await scope.skip_dispatched(conn, dispatch_id)
    if begun["has_windows"]:
        await blackouts.hold_dispatched(conn, begun["workspace_id"], dispatch_id)


async def _room(conn: Connection, request: ClaimRequest, begun: Record) -> Room:
    """How many jobs the claim may take: as the worker, the server, limits and the workspace's share allow."""
    if not begun["is_open"]:  # its step was cancelled, and the rest of its jobs will be
        return Room(jobs=0)
    workspace_id, toolset, queue = begun["workspace_id"], begun["toolset"], begun["task_queue"]
    room = await limits.room_to_claim(conn, workspace_id, toolset) if begun["is_limited"] else Room()
    most = max(0, min(request.slots, CLAIM_CAP, CLAIM_CAP if room.jobs is None else room.jobs))
    if most and queue == names.shared_scan_queue(toolset):
        use = await sharing.use_to_claim(conn, sharing.Sharer(workspace_id, toolset), request.dispatch_id)
        most = most if use.may_claim else 0
    return replace(room, jobs=most)


def _answer(
    request: ClaimRequest,
    rows: Sequence[Record],
    begun: Record,
    denied: Mapping[UUID | None, list[str]],
) -> ClaimAnswer:
    first = rows[0]
    networks = [*begun["allowed_networks"], *begun["cidrs"]]
    options = {
        **begun["config"],
        "allow": [str(network) for network in networks],
        "bound": begun["is_bound"],
        "deny": denied.get(None, []),
        "timeout_s": begun["wall_s"],
    }
    return ClaimAnswer(
        dispatch_id=request.dispatch_id,
        tool_id=first["tool_id"],
        category=first["category"],
        run_id=first["run_id"],
        options=options,
        jobs=[
            ClaimedJob(row["id"], row["attempt"], _spec(row, denied.get(row["target_id"]))) for row in rows
        ],
    )


def _paced(job: ClaimedJob, shares: Mapping[UUID, int]) -> ClaimedJob:
    """The job with what it may send a second; without a rate it is told nothing."""
    share = shares.get(job.job_id)
    return job if share is None else replace(job, spec={**job.spec, "rate_per_s": share})


def _spec(row: Record, denied: list[str] | None) -> Mapping[str, object]:
    """The target object of a job, with what is excluded for its target alone."""
    spec: Mapping[str, object] = row["spec"]
    return {**spec, "deny": denied} if denied else spec


def _started(row: Record, worker_id: UUID) -> Envelope:
    return envelope(
        EVENT_CATALOG.job.started,
        JobStarted(
            job_id=row["id"],
            run_id=row["run_id"],
            step_id=row["step_id"],
            tool_id=row["tool_id"],
            attempt=row["attempt"],
            worker_id=worker_id,
        ),
        workspace_id=row["workspace_id"],
        subject=names.job_subject(row["id"]),
        ordinal=row["attempt"],
    )
