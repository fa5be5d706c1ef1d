"""Stage: what a worker found out about its jobs is kept before anybody acts on it.

A staged outcome survives the worker: the job is merged, not scanned again. One delivery of a batch is one
row of `job_results`; small bodies stay in the row, large ones are already in the bucket and only referred to.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson

from runlane.db.guards import IN_PROGRESS
from runlane.db.pool import Connection
from runlane.events import scrub_argv, scrub_text
from runlane.jobs import Outcome

MAX_ERROR_CHARS = 2_000
MAX_ARGUMENTS = 200
MAX_ARGUMENT_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A body that the worker has put into the bucket."""

    key: str
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class StagedMember:
    """The outcome of one attempt, as its worker tells it."""

    job_id: UUID
    attempt: int
    outcome: Outcome
    error: str | None
    complete: bool
    reachable: bool
    coverage: Mapping[str, object]
    argv: Sequence[str] | None = None
    tool_version: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Outcomes of members of one dispatch and the records they produced.

    The body is NDJSON, one line per member that has records: `{"job", "attempt", "records": [...]}`.
    """

    worker_id: UUID
    incarnation: UUID
    dispatch_id: UUID
    members: Sequence[StagedMember]
    body: bytes | None = None
    object_ref: ObjectRef | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """Which members were taken; `stale` ones had been cancelled, released or claimed anew."""

    accepted: list[UUID]
    stale: list[UUID]


_RESULT = """
INSERT INTO job_results (workspace_id, run_id, category, body, object_key, size_bytes, sha256)
SELECT d.workspace_id, d.run_id, t.category, $2, $3, $4, $5
FROM dispatches d
JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
JOIN tools t ON t.id = s.tool_id
WHERE d.id = $1
ON CONFLICT (object_key) DO NOTHING
RETURNING id
"""

_STAGE = f"""
UPDATE job_attempts a
SET staged_at = clock_timestamp(), staged_outcome = m.outcome, staged_error = m.error,
    is_complete = m.complete, is_reachable = m.reachable, coverage = m.coverage,
    argv = CASE WHEN m.argv IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(m.argv::jsonb)) END,
    tool_version = m.tool_version, result_id = $4
FROM unnest($5::uuid[], $6::int[], $7::text[], $8::text[], $9::bool[], $10::bool[], $11::jsonb[],
            $12::text[], $13::text[])
  AS m (job_id, attempt, outcome, error, complete, reachable, coverage, argv, tool_version),
  jobs j
WHERE a.job_id = m.job_id AND a.attempt = m.attempt AND a.dispatch_id = $1 AND a.worker_id = $2
  AND a.incarnation = $3 AND a.ended_at IS NULL AND a.staged_at IS NULL
  AND j.id = a.job_id AND j.attempt = a.attempt AND j.status = {IN_PROGRESS}
RETURNING a.job_id
"""

_STAGED_BEFORE = """
SELECT a.job_id FROM job_attempts a
JOIN unnest($4::uuid[], $5::int[]) AS m (job_id, attempt) ON a.job_id = m.job_id AND a.attempt = m.attempt
WHERE a.dispatch_id = $1 AND a.worker_id = $2 AND a.incarnation = $3 AND a.staged_at IS NOT NULL
"""

_DROP = "DELETE FROM job_results WHERE id = $1"


async def stage(conn: Connection, delivery: Delivery) -> Staged:
    """Keeps the outcomes of one delivery, in one transaction of the caller.

    Conditional on the attempt: a member that was cancelled, released or claimed anew in between is stale and
    nothing of it is kept. A repeated delivery is answered as the first one was.
    """
    members = delivery.members
    owner = (delivery.dispatch_id, delivery.worker_id, delivery.incarnation)
    result_id = await _insert_result(conn, delivery)
    rows = await conn.fetch(
        _STAGE,
        *owner,
        result_id,
        [member.job_id for member in members],
        [member.attempt for member in members],
        [member.outcome for member in members],
        [_error(member.error) for member in members],
        [member.complete for member in members],
        [member.reachable for member in members],
        [dict(member.coverage) for member in members],
        _argvs(members),
        [member.tool_version for member in members],
    )
    taken = {row["job_id"] for row in rows}
    if result_id is not None and not taken:
        await conn.execute(_DROP, result_id)
    if len(taken) < len(members):
        before = await conn.fetch(
            _STAGED_BEFORE, *owner, [m.job_id for m in members], [m.attempt for m in members]
        )
        taken |= {row["job_id"] for row in before}
    ids = [member.job_id for member in members]
    return Staged([i for i in ids if i in taken], [i for i in ids if i not in taken])


async def _insert_result(conn: Connection, delivery: Delivery) -> UUID | None:
    body, ref = delivery.body, delivery.object_ref
    if ref is not None:
        values: tuple[object, ...] = (None, ref.key, ref.size_bytes, ref.sha256)
    elif body:
        values = (body, None, len(body), hashlib.sha256(body).digest())
    else:
        return None
    result_id: UUID | None = await conn.fetchval(_RESULT, delivery.dispatch_id, *values)
    return result_id


def _argvs(members: Sequence[StagedMember]) -> list[str | None]:
    """The argument list of each member; jobs of one child process have one, which is scrubbed once."""
    argvs = [tuple(member.argv or ()) for member in members]
    texts = {argv: _argv(argv) for argv in set(argvs)}
    return [texts[argv] for argv in argvs]


def _argv(argv: Sequence[str]) -> str | None:
    """The scrubbed list as JSON text: a list of lists would be an array of two dimensions."""
    if not argv:
        return None
    kept = [argument[:MAX_ARGUMENT_CHARS] for argument in scrub_argv(argv[:MAX_ARGUMENTS])]
    return orjson.dumps(kept).decode()


def _error(text: str | None) -> str | None:
    if not text:
        return None
    # masked before it is cut: half a token may look like none
    return scrub_text(text.replace("\x00", "\N{REPLACEMENT CHARACTER}"))[:MAX_ERROR_CHARS]
