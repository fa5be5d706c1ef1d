"""How the lanes fare: what each reports of itself, and how far it is behind the bus."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from runlane.db.dead_letters import LetterStatus
from runlane.db.pool import Connection

DOWN_AFTER_S: Final = 30
"""A lane without a sign of life for so long is down: a turn takes two seconds when nothing comes."""

LAGGING_AFTER_S: Final = 60
"""A lane whose oldest unhandled event is older lags."""

FAILING_FOR_S: Final = 60
"""A lane whose last failure is younger is failing."""

COUNTED: Final = ("acked", "skipped", "failed", "dead", "unknown")
"""What a lane counts of the events that it meets, as columns of its report."""

_REPORT: Final = f"""
INSERT INTO lane_reports AS r
  (lane, pending, oldest_pending_s, {", ".join(COUNTED)}, last_error, last_error_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $9::text IS NOT NULL THEN clock_timestamp() END)
ON CONFLICT (lane) DO UPDATE SET
  pending = excluded.pending, oldest_pending_s = excluded.oldest_pending_s,
  {", ".join(f"{name} = r.{name} + excluded.{name}" for name in COUNTED)},
  last_error = coalesce(excluded.last_error, r.last_error),
  last_error_at = coalesce(excluded.last_error_at, r.last_error_at),
  reported_at = clock_timestamp()
"""

_BUS: Final = """
SELECT b.last_seq, b.published_seq, b.epoch,
  (SELECT count(*) FROM outbox WHERE bus_seq IS NULL) + b.last_seq - b.published_seq AS unpublished,
  coalesce(extract(epoch FROM clock_timestamp() - least(
    (SELECT created_at FROM outbox WHERE bus_seq > b.published_seq ORDER BY bus_seq LIMIT 1),
    (SELECT created_at FROM outbox WHERE bus_seq IS NULL ORDER BY id LIMIT 1))), 0)::float8
    AS oldest_unpublished_s
FROM bus_state b
"""

_LANES: Final = f"""
SELECT c.lane, c.last_seq, c.read_seq, c.lost, c.live_at,
  greatest(b.last_seq - c.last_seq, 0) AS lag_events, coalesce(oldest.age_s, 0)::float8 AS lag_s,
  r.pending, r.oldest_pending_s, coalesce(r.acked, 0) AS acked, coalesce(r.skipped, 0) AS skipped,
  coalesce(r.failed, 0) AS failed, coalesce(r.dead, 0) AS dead, coalesce(r.unknown, 0) AS unknown,
  r.last_error, r.last_error_at,
  (SELECT count(*) FROM dead_letters d
   WHERE d.lane = c.lane AND d.status = '{LetterStatus.OPEN}' AND d.workspace_id IS NOT NULL) AS dead_letters,
  CASE
    WHEN c.live_at IS NULL OR c.live_at < clock_timestamp() - interval '{DOWN_AFTER_S} s' THEN 'down'
    WHEN r.last_error_at > clock_timestamp() - interval '{FAILING_FOR_S} s' THEN 'failing'
    WHEN oldest.age_s > {LAGGING_AFTER_S} THEN 'lagging'
    ELSE 'ok'
  END AS health
FROM lane_checkpoints c
CROSS JOIN bus_state b
LEFT JOIN lane_reports r ON r.lane = c.lane
LEFT JOIN LATERAL (
  SELECT extract(epoch FROM clock_timestamp() - o.created_at) AS age_s FROM outbox o
  WHERE o.bus_seq > c.last_seq ORDER BY o.bus_seq LIMIT 1
) AS oldest ON true
ORDER BY c.lane
"""


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What a process says of a lane since its last report. None: the server of the stream did not say."""

    lane: str
    pending: int | None
    oldest_pending_s: float | None
    counts: Mapping[str, int]
    last_error: str | None


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """How a lane is."""

    lane: str
    last_seq: int
    read_seq: int
    lost: int
    live_at: datetime | None
    lag_events: int
    lag_s: float
    pending: int | None
    oldest_pending_s: float | None
    acked: int
    skipped: int
    failed: int
    dead: int
    unknown: int
    last_error: str | None
    last_error_at: datetime | None
    dead_letters: int
    health: str


@dataclass(frozen=True, slots=True)
class BusStatus:
    """How the bus is."""

    lanes: list[LaneStatus]
    last_seq: int
    published_seq: int
    epoch: int
    unpublished: int
    oldest_unpublished_s: float


async def report(conn: Connection, said: LaneReport) -> None:
    """Adds what a process has counted to the lane's report."""
    counts = (said.counts.get(name, 0) for name in COUNTED)
    await conn.execute(_REPORT, said.lane, said.pending, said.oldest_pending_s, *counts, said.last_error)


async def read_bus(conn: Connection) -> BusStatus:
    """Reads how bus and lanes are. Indexes: outbox_bus_seq, outbox_unsequenced, dead_letters_asked."""
    (bus,) = await conn.fetch(_BUS)
    return BusStatus([LaneStatus(*row.values()) for row in await conn.fetch(_LANES)], *bus.values())
