"""Lines of running jobs, passed from the worker to whoever looks at them, by NOTIFY: nothing is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from runlane import names
from runlane.db.pool import Connection
from runlane.jobs import JobStatus

_NOTICE_BYTES: Final = 7_000
"""Of one notice; PostgreSQL takes less than 8,000."""

_LINE_BYTES: Final = 6_000
"""Of one line as JSON: one of 2,000 characters may need more, and is cut."""

_IS_ITS: Final = """
SELECT true FROM job_attempts
WHERE job_id = $1 AND attempt = $2 AND worker_id = $3 AND incarnation = $4
"""

_NOTIFY: Final = f"SELECT pg_notify('{names.TAILS_CHANNEL}', n) FROM unnest($1::text[]) AS u (n)"

_ASK: Final = f"SELECT pg_notify('{names.CONTROL_CHANNEL}', $1)"

_LOOK: Final = "SELECT status, attempt, worker_id FROM jobs WHERE workspace_id = $1 AND id = $2"


@dataclass(frozen=True, slots=True)
class OfAttempt:
    """Whose lines, and who says so."""

    job_id: UUID
    attempt: int
    worker_id: UUID
    incarnation: UUID


@dataclass(frozen=True, slots=True)
class Looked:
    """A job as an onlooker needs it."""

    status: JobStatus
    attempt: int
    worker_id: UUID | None


async def publish(conn: Connection, of: OfAttempt, first: int, lines: Sequence[str]) -> None:
    """Tells whoever listens of lines that are clean; those of a job that is not the worker's are dropped."""
    if await conn.fetchval(_IS_ITS, of.job_id, of.attempt, of.worker_id, of.incarnation) is None:
        return
    await conn.execute(_NOTIFY, _notices(of, first, lines))


async def ask(conn: Connection, job_id: UUID, looked: Looked, *, is_new: bool) -> None:
    """Asks the worker that has a job in hand for its lines; a lost hint is made up for by the next."""
    notice = {
        "kind": "tail",
        "worker": str(looked.worker_id),
        "job": str(job_id),
        "attempt": looked.attempt,
        "new": is_new,
    }
    await conn.execute(_ASK, orjson.dumps(notice).decode())


async def look(conn: Connection, workspace_id: UUID, job_id: UUID) -> Looked | None:
    """Reads one job by its id; None if there is none."""
    row = await conn.fetchrow(_LOOK, workspace_id, job_id)
    return Looked(JobStatus(row["status"]), row["attempt"], row["worker_id"]) if row is not None else None


def _notices(of: OfAttempt, first: int, lines: Sequence[str]) -> list[str]:
    notices: list[str] = []
    group: list[str] = []
    begin, size = first, 0
    for number, line in enumerate(lines, first):
        cut = _cut(line)
        room = len(orjson.dumps(cut)) + 1
        if group and size + room > _NOTICE_BYTES:
            notices.append(_notice(of, begin, group))
            group, begin, size = [], number, 0
        group.append(cut)
        size += room
    return [*notices, _notice(of, begin, group)] if group else notices


def _notice(of: OfAttempt, first: int, lines: Sequence[str]) -> str:
    notice = {"job": str(of.job_id), "attempt": of.attempt, "first": first, "lines": list(lines)}
    return orjson.dumps(notice).decode()


def _cut(line: str) -> str:
    while len(orjson.dumps(line)) > _LINE_BYTES:
        line = line[: len(line) * 3 // 4]
    return line
