"""Scope: jobs that are about something excluded are skipped, with an event, and never run.

Judged is what is written down: the name, address and port that the job is given. Where a name leads is known
when it is resolved; then the tool refuses it, by the same exclusions (`denied`).
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from runlane.db import outbox
from runlane.db.guards import job_may
from runlane.db.pool import Connection
from runlane.db.skips import skipped
from runlane.jobs import JOBS, JobVerb
from runlane.tools.exclusions import Exclusion, ExclusionKind

OUT_OF_SCOPE: Final = "out_of_scope"
"""Reason of a job that was skipped because an exclusion covers what it is about."""


def covers(job: str) -> str:
    """SQL: an exclusion `x` covers a job."""
    host, address = f"{job}.spec ->> 'host'", f"{job}.spec ->> 'address'"
    return f"""(x.workspace_id IS NULL OR x.workspace_id = {job}.workspace_id)
  AND (x.target_id IS NULL OR x.target_id = {job}.target_id)
  AND CASE x.kind
        WHEN '{ExclusionKind.PORT}' THEN {job}.spec ->> 'port' = x.value
        WHEN '{ExclusionKind.NETWORK}' THEN runlane_is_inside({host}, x.value)
                                            OR runlane_is_inside({address}, x.value)
        WHEN '{ExclusionKind.HOST}' THEN {host} = x.value
        ELSE {host} = x.value OR right({host}, length(x.value) + 1) = '.' || x.value END"""


def is_excluded(job: str) -> str:
    """SQL: whether some exclusion covers a job."""
    return f"EXISTS (SELECT FROM exclusions x WHERE {covers(job)})"


def any_in(workspace: str) -> str:
    """SQL: whether a workspace (an expression) has exclusions, those of the platform included."""
    return f"EXISTS (SELECT FROM exclusions x WHERE x.workspace_id IS NULL OR x.workspace_id = {workspace})"


def _skip(which: str, lock: str = "FOR UPDATE") -> str:
    return f"""
WITH doomed AS (
  SELECT id, workspace_id FROM jobs
  WHERE {which} AND {job_may(JobVerb.SKIP)}
  ORDER BY id
  {lock}
)
UPDATE jobs
SET status = '{JOBS.target_of(JobVerb.SKIP)}', completed_at = clock_timestamp(), reason = $2,
  dispatch_id = NULL
FROM doomed
WHERE jobs.id = doomed.id AND jobs.workspace_id = doomed.workspace_id
RETURNING jobs.id, jobs.workspace_id, jobs.run_id, jobs.step_id, jobs.tool_id, jobs.attempt
"""


_SKIP_JOBS: Final = _skip("id = ANY($1::uuid[])")
_SKIP_EXCLUDED: Final = _skip(f"id = ANY($1::uuid[]) AND {is_excluded('jobs')}")
_SKIP_DISPATCHED: Final = _skip(
    f"dispatch_id = $1 AND completed_at IS NULL AND {is_excluded('jobs')}", "FOR UPDATE SKIP LOCKED"
)

_DENIED: Final = """
SELECT kind, value, target_id FROM exclusions
WHERE (workspace_id IS NULL OR workspace_id = $1) AND (target_id IS NULL OR target_id = ANY($2::uuid[]))
ORDER BY kind, value
"""


async def skip_jobs(conn: Connection, job_ids: Sequence[UUID], reason: str = OUT_OF_SCOPE) -> int:
    """Skips those of these jobs that are pending, for a reason; answers how many. By the primary key."""
    return await _done(conn, _SKIP_JOBS, list(job_ids), reason)


async def skip_excluded(conn: Connection, job_ids: Sequence[UUID]) -> int:
    """The same of those that an exclusion covers."""
    return await _done(conn, _SKIP_EXCLUDED, list(job_ids))


async def skip_dispatched(conn: Connection, dispatch_id: UUID) -> int:
    """The same of what is pending in a batch and nobody holds. Uses `jobs_dispatched`."""
    return await _done(conn, _SKIP_DISPATCHED, dispatch_id)


async def denied(
    conn: Connection, workspace_id: UUID, target_ids: Sequence[UUID]
) -> Mapping[UUID | None, list[str]]:
    """What tools must not contact, as in the option `deny`: for every job (None), and for single targets."""
    found: dict[UUID | None, list[str]] = {}
    for row in await conn.fetch(_DENIED, workspace_id, target_ids):
        exclusion = Exclusion(ExclusionKind(row["kind"]), row["value"])
        found.setdefault(row["target_id"], []).append(exclusion.text)
    return found


async def _done(conn: Connection, statement: str, which: object, reason: str = OUT_OF_SCOPE) -> int:
    rows = await conn.fetch(statement, which, reason)
    for start in range(0, len(rows), outbox.INSERT_CHUNK):
        chunk = rows[start : start + outbox.INSERT_CHUNK]
        await outbox.insert(conn, [skipped(row, row["run_id"], reason) for row in chunk])
    return len(rows)
