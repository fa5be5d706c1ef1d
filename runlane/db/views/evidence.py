"""What the attempts of a job ran and said: who, with which arguments, how it ended, what it left behind."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection, Record
from runlane.errors import NotFound

_EXISTS: Final = "SELECT true FROM jobs WHERE workspace_id = $1 AND id = $2"

# A shared worker has no row that a workspace may see: its id is told and its name is not.
_ATTEMPTS: Final = """
SELECT a.attempt, a.worker_id, w.name AS worker, a.incarnation, a.dispatch_id, a.claimed_at, a.staged_at,
       a.ended_at, a.outcome, a.charged, a.staged_outcome, a.staged_error, a.is_complete, a.coverage,
       a.summary, a.argv, a.tool_version, r.size_bytes AS result_bytes
FROM job_attempts a
LEFT JOIN workers w ON w.id = a.worker_id AND w.workspace_id = a.workspace_id
LEFT JOIN job_results r ON r.id = a.result_id AND r.workspace_id = a.workspace_id
WHERE a.workspace_id = $1 AND a.job_id = $2
ORDER BY a.attempt DESC
"""

_ERRORS: Final = """
SELECT attempt, outcome, message, partial, times, created_at, last_at
FROM job_error_logs
WHERE workspace_id = $1 AND job_id = $2
ORDER BY last_at DESC, id DESC
"""

_RESULT: Final = """
SELECT a.attempt, coalesce(a.body_job_id, a.job_id) AS body_job_id,
       coalesce(a.body_attempt, a.attempt) AS body_attempt, r.body, r.object_key, r.size_bytes, r.sha256
FROM job_attempts a
JOIN job_results r ON r.id = a.result_id AND r.workspace_id = a.workspace_id
WHERE a.workspace_id = $1 AND a.job_id = $2 AND ($3::int IS NULL OR a.attempt = $3)
ORDER BY a.attempt DESC
LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A staged result that is still there, and which lines of it are the job's own."""

    attempt: int
    begins: bytes
    """How the job's lines begin; others of the body are other jobs'."""
    body: bytes | None
    object_key: str | None
    size_bytes: int
    sha256: bytes


async def attempts_of_job(conn: Connection, workspace_id: UUID, job_id: UUID) -> list[Record]:
    """Attempts of a job, the newest first.

    Raises:
        NotFound: `job.not_found`.
    """
    await _require(conn, workspace_id, job_id)
    return await conn.fetch(_ATTEMPTS, workspace_id, job_id)


async def errors_of_job(conn: Connection, workspace_id: UUID, job_id: UUID) -> list[Record]:
    """Distinct errors of a job with what it had found until then, the last to occur first.

    Raises:
        NotFound: `job.not_found`.
    """
    await _require(conn, workspace_id, job_id)
    return await conn.fetch(_ERRORS, workspace_id, job_id)


async def kept_result(
    conn: Connection, workspace_id: UUID, job_id: UUID, attempt: int | None = None
) -> KeptResult:
    """Finds what an attempt staged, the last one's that left something if none is named.

    Raises:
        NotFound: `job.not_found`; `result.gone`, nothing was staged or it has been merged and removed.
    """
    await _require(conn, workspace_id, job_id)
    row = await conn.fetchrow(_RESULT, workspace_id, job_id, attempt)
    if row is None:
        raise gone()
    begins = b'{"job":"%s","attempt":%d,' % (str(row["body_job_id"]).encode(), row["body_attempt"])
    return KeptResult(
        row["attempt"], begins, row["body"], row["object_key"], row["size_bytes"], row["sha256"]
    )


def gone() -> NotFound:
    """What is answered when there is no result of a job to give."""
    return NotFound("no result of the job is kept: it is removed once it is merged", code="result.gone")


async def _require(conn: Connection, workspace_id: UUID, job_id: UUID) -> None:
    if await conn.fetchval(_EXISTS, workspace_id, job_id) is None:
        raise NotFound("no such job", code="job.not_found")
