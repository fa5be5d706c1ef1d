"""Statistics by day: counters that the projection lane adds to, and the gauges of a daily snapshot."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.automation_payloads import StatisticSnapshotCreated
from runlane.events.wire import format_time
from runlane.statistics import METRICS, Cell, Granularity, Kind

# A workspace that is gone meanwhile has no statistics.
_ADD: Final = """
INSERT INTO daily_statistics AS s (workspace_id, metric, day, value)
SELECT e.workspace_id, e.metric, e.day, e.value
FROM unnest($1::uuid[], $2::text[], $3::date[], $4::bigint[]) AS e (workspace_id, metric, day, value)
JOIN workspaces w ON w.id = e.workspace_id
ORDER BY e.workspace_id, e.metric, e.day
ON CONFLICT (workspace_id, metric, day) DO UPDATE SET value = s.value + excluded.value
"""

_READ: Final = """
WITH asked AS (SELECT coalesce($3::date, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS until)
SELECT s.metric, date_trunc($5, s.day)::date AS since, sum(s.value)::bigint AS total,
       (array_agg(s.value ORDER BY s.day DESC))[1] AS newest
FROM asked
JOIN daily_statistics s ON s.day BETWEEN asked.until - $4::int + 1 AND asked.until
WHERE s.workspace_id = $1 AND s.metric = ANY ($2::text[])
GROUP BY s.metric, since
ORDER BY s.metric, since
"""

_TODAY: Final = """
SELECT metric, value FROM daily_statistics
WHERE workspace_id = $1 AND metric = ANY ($2::text[]) AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date
"""

_SNAPSHOT: Final = """
WITH due AS (
  SELECT w.id, today.day
  FROM workspaces w, (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
  WHERE w.deleted_at IS NULL AND w.created_at < today.day AT TIME ZONE 'UTC'
    AND NOT EXISTS (SELECT FROM daily_statistics s
                    WHERE s.workspace_id = w.id AND s.metric = 'live.targets' AND s.day = today.day)
  LIMIT $1
), counted AS (
  SELECT due.id, due.day, count(t.id) AS targets, sum(s.assets) AS assets, sum(s.ports) AS ports,
         sum(s.services) AS services, sum(s.findings_info) AS info, sum(s.findings_low) AS low,
         sum(s.findings_medium) AS medium, sum(s.findings_high) AS high, sum(s.findings_critical) AS critical
  FROM due
  LEFT JOIN targets t ON t.workspace_id = due.id AND t.deleted_at IS NULL
  LEFT JOIN target_summaries s ON s.workspace_id = t.workspace_id AND s.target_id = t.id
  GROUP BY due.id, due.day
), kept AS (
  INSERT INTO daily_statistics (workspace_id, metric, day, value)
  SELECT c.id, gauge.metric, c.day, coalesce(gauge.value, 0)
  FROM counted c CROSS JOIN LATERAL (VALUES
    ('live.targets', c.targets), ('live.assets', c.assets), ('live.ports', c.ports),
    ('live.services', c.services), ('live.findings.info', c.info), ('live.findings.low', c.low),
    ('live.findings.medium', c.medium), ('live.findings.high', c.high),
    ('live.findings.critical', c.critical)) AS gauge (metric, value)
  ORDER BY c.id, gauge.metric
  ON CONFLICT DO NOTHING
  RETURNING workspace_id, metric, day
)
SELECT workspace_id, day, clock_timestamp() AS taken_at FROM kept WHERE metric = 'live.targets'
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which statistics: those of so many days up to one, which is included; None: up to today in UTC."""

    metrics: Sequence[str]
    days: int
    until: date | None
    by: Granularity


@dataclass(frozen=True, slots=True)
class Point:
    """What a metric was in the period that begins on a day."""

    metric: str
    kind: Kind
    since: date
    value: int


async def add(conn: Connection, counted: Counter[Cell]) -> None:
    """Adds to counters. Not to be repeated: the lane's inbox, in the same transaction, says what is new."""
    cells = list(counted.items())
    if cells:
        await conn.execute(
            _ADD,
            [cell.workspace_id for cell, _ in cells],
            [cell.metric for cell, _ in cells],
            [cell.day for cell, _ in cells],
            [value for _, value in cells],
        )


async def read(conn: Connection, workspace_id: UUID, asked: Asked) -> list[Point]:
    """Points in the order of metric and time; a period in which nothing was counted has none.

    Index: the primary key.
    """
    rows = await conn.fetch(_READ, workspace_id, asked.metrics, asked.until, asked.days, asked.by.value)
    return [_point(row) for row in rows]


async def read_today(conn: Connection, workspace_id: UUID, metrics: Sequence[str]) -> dict[str, int]:
    """Counters of the day that it is now in UTC, 0 where nothing was counted. Index: the primary key."""
    rows = await conn.fetch(_TODAY, workspace_id, metrics)
    return dict.fromkeys(metrics, 0) | {row["metric"]: row["value"] for row in rows}


async def take_snapshots(conn: Connection, limit: int) -> int:
    """Keeps today's gauges of up to `limit` workspaces that have none yet, and says so on the bus.

    A workspace that was made today had nothing when the day began. Returns how many; repeated, it does the
    others. Index: the primary key.
    """
    rows = await conn.fetch(_SNAPSHOT, limit)
    await outbox.insert(conn, [_created(row["workspace_id"], row["day"], row["taken_at"]) for row in rows])
    return len(rows)


def _point(row: Record) -> Point:
    kind = METRICS[row["metric"]]
    return Point(row["metric"], kind, row["since"], row["total"] if kind is Kind.COUNTER else row["newest"])


def _created(workspace_id: UUID, day: date, taken_at: datetime) -> Envelope:
    return envelope(
        EVENT_CATALOG.statistic.snapshot.created,
        StatisticSnapshotCreated(day=day.isoformat(), taken_at=format_time(taken_at)),
        workspace_id=workspace_id,
        subject=names.workspace_subject(workspace_id),
        ordinal=day.isoformat(),
    )
