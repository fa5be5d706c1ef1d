"""Jobs of a run by step and status, for readers that ask again every second.

What has ended is remembered between polls and read anew only behind a moment that no open transaction can lie
before any more: a poll of a run with 100,000 finished jobs reads the live ones and those of the last minute.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from uuid import UUID

from runlane.db.guards import LIVE_JOB
from runlane.db.pool import Connection
from runlane.jobs import JobStatus
from runlane.progress import RECENT_S

Key: TypeAlias = tuple[str, JobStatus]
"""Step and status."""

_REMEMBERED: Final = 200
"""Runs that one process remembers."""

_RECOUNT_AFTER: Final = timedelta(minutes=10)
"""All is counted anew after this, should a transaction have lasted longer than `RECENT_S`."""

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TALLY: Final = f"""
SELECT step_id, status, count(*) AS jobs, 0 AS settled, 0 AS recent, statement_timestamp() AS as_of
FROM jobs WHERE workspace_id = $1 AND run_id = $2 AND {LIVE_JOB}
GROUP BY step_id, status
UNION ALL
SELECT step_id, status, count(*),
       count(*) FILTER (WHERE completed_at <= statement_timestamp() - make_interval(secs => $4)),
       count(*) FILTER (WHERE completed_at > statement_timestamp() - make_interval(secs => $4)),
       statement_timestamp()
FROM jobs WHERE workspace_id = $1 AND run_id = $2 AND completed_at IS NOT NULL AND completed_at > $3
GROUP BY step_id, status
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """Jobs of a run by step and status; `recent` are those that ended lately, by step."""

    jobs: Mapping[Key, int]
    recent: Mapping[str, int]

    def of_step(self, step_id: str) -> dict[JobStatus, int]:
        """Jobs of one step by status."""
        return {status: count for (step, status), count in sorted(self.jobs.items()) if step == step_id}

    def by_status(self) -> dict[JobStatus, int]:
        """Jobs of the whole run by status."""
        total: Counter[JobStatus] = Counter()
        for (_, status), count in sorted(self.jobs.items()):
            total[status] += count
        return dict(total)


@dataclass(slots=True)
class _Known:
    """What had ended at `until`."""

    until: datetime = _BEGINNING
    begun_at: datetime | None = None
    ended: Counter[Key] = field(default_factory=Counter)

    def advance(self, settled: Mapping[Key, int], as_of: datetime) -> None:
        self.ended.update(settled)
        self.until = as_of - timedelta(seconds=RECENT_S)
        self.begun_at = self.begun_at or as_of


class Tallies:
    """Tallies of the runs that were asked for last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[UUID, UUID], _Known] = OrderedDict()

    async def tally(self, conn: Connection, workspace_id: UUID, run_id: UUID) -> Tally:
        """Counts the jobs of a run that is there. Uses `jobs_live` and `jobs_ended`."""
        run = (workspace_id, run_id)
        known = self._known.get(run) or _Known()
        since = known.until
        rows = await conn.fetch(_TALLY, workspace_id, run_id, since, RECENT_S)
        jobs: Counter[Key] = Counter(known.ended)
        settled: Counter[Key] = Counter()
        recent: Counter[str] = Counter()
        for row in rows:
            key = (row["step_id"], JobStatus(row["status"]))
            jobs[key] += row["jobs"]
            settled[key] += row["settled"]
            recent[row["step_id"]] += row["recent"]
        if rows and known.until == since:  # else another poll has counted the same meanwhile
            known.advance(settled, rows[0]["as_of"])
            self._keep(run, known, rows[0]["as_of"])
        return Tally(jobs, recent)

    def _keep(self, run: tuple[UUID, UUID], known: _Known, as_of: datetime) -> None:
        if known.begun_at is not None and as_of - known.begun_at > _RECOUNT_AFTER:
            self._known.pop(run, None)
            return
        self._known[run] = known
        self._known.move_to_end(run)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
