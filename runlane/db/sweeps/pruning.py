"""What is pruned by age: jobs in a final state, and rows that only served what is over.

Live work is never pruned, however old. Runs are kept: findings refer to them.
Source: Job registry, Retention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.sweeps import Retention

# Ids are drawn in order of time, and a job ends after it was made: no index on `completed_at` is needed, and
# what is younger is not read.
_OLD_JOBS: Final = """
SELECT id FROM jobs
WHERE id > $1 AND id < (SELECT uuidv7(make_interval(days => -$3::int)))
  AND completed_at < clock_timestamp() - make_interval(days => $3)
ORDER BY id LIMIT $2
"""

_PRUNE_JOBS: Final = """
DELETE FROM jobs WHERE id = ANY($1::uuid[]) AND completed_at < clock_timestamp() - make_interval(days => $2)
RETURNING id, run_id
"""

_EMPTY_RUNS: Final = """
UPDATE job_histories h SET jobs_pruned_at = clock_timestamp()
WHERE h.id = ANY($1::uuid[]) AND h.closed_at IS NOT NULL AND h.jobs_pruned_at IS NULL
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.run_id = h.id)
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of a table that go some days after they have served."""

    table: str
    condition: str
    days: int

    @property
    def statement(self) -> str:
        """Deletes a page of them, passing over what others hold."""
        return f"""
        DELETE FROM {self.table} WHERE ctid = ANY(ARRAY(
          SELECT ctid FROM {self.table} r WHERE {self.condition} LIMIT $1 FOR UPDATE SKIP LOCKED))
        """


def rules(keep: Retention) -> tuple[Rule, ...]:
    """Everything that grows and has no sweep of its own."""

    def older(column: str, days: int) -> str:
        return f"r.{column} < clock_timestamp() - interval '{days} days'"

    # Claims under a rate prune what counts no more; none comes after the last rate was removed.
    unshared = """NOT EXISTS (SELECT FROM job_attempts a WHERE a.job_id = r.job_id AND a.attempt = r.attempt
        AND (a.ended_at IS NULL OR a.ended_at > clock_timestamp() - interval '1 day'))"""
    unused = "NOT EXISTS (SELECT FROM jobs j WHERE j.dispatch_id = r.id AND j.completed_at IS NULL)"
    return (
        Rule("commands", older("done_at", keep.commands_days), keep.commands_days),
        Rule("dispatches", f"{older('closed_at', keep.jobs_days)} AND {unused}", keep.jobs_days),
        Rule(
            "deliveries",
            f"{older('ended_at', keep.deliveries_days)} AND r.state <> 'pending'",
            keep.deliveries_days,
        ),
        Rule("delivery_windows", older("began_at", 1), 1),
        Rule("operations", older("finished_at", keep.jobs_days), keep.jobs_days),
        Rule("pauses", older("lifted_at", keep.jobs_days), keep.jobs_days),
        Rule(
            "schedule_fires",
            f"{older('due_at', keep.jobs_days)} AND r.outcome <> 'buffered'",
            keep.jobs_days,
        ),
        Rule("run_shards", older("closed_at", keep.jobs_days), keep.jobs_days),
        Rule("idempotency_keys", older("created_at", keep.idempotency_days), keep.idempotency_days),
        Rule("notifications", older("updated_at", keep.notifications_days), keep.notifications_days),
        Rule("daily_statistics", older("day", keep.statistics_days), keep.statistics_days),
        Rule("notification_mutes", older("until", 1), 1),
        Rule("rate_shares", unshared, 1),
        Rule("api_replicas", older("seen_at", 1), 1),
        Rule("gateway_replicas", older("seen_at", 1), 1),
    )


async def find_old_jobs(conn: Connection, after: UUID, limit: int, days: int) -> list[UUID]:
    """Jobs that ended so many days ago, oldest first. Index: the primary key."""
    return [row["id"] for row in await conn.fetch(_OLD_JOBS, after, limit, days)]


async def prune_jobs(conn: Connection, job_ids: Sequence[UUID], days: int) -> list[UUID]:
    """Deletes old jobs with their attempts and error logs; a run without jobs leaves the list of runs."""
    rows = await conn.fetch(_PRUNE_JOBS, job_ids, days)
    await conn.execute(_EMPTY_RUNS, sorted({row["run_id"] for row in rows}))
    return [row["id"] for row in rows]


async def prune_rows(conn: Connection, rule: Rule, limit: int) -> int:
    """Deletes up to `limit` rows by a rule; returns how many."""
    status = await conn.execute(rule.statement, limit)
    return int(status.rpartition(" ")[2])
