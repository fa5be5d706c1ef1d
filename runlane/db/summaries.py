"""Summaries: what is known of each target and of a workspace, counted ahead so that nobody counts to read.

Events mark summaries as stale; they are counted from the inventory soon after, each once however many events
there were. So a summary is right whatever the order of events, and however often they come.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection, Record
from runlane.errors import NotFound
from runlane.statistics import Touched

_MARK: Final = """
INSERT INTO target_summaries AS s (workspace_id, target_id)
SELECT workspace_id, target_id FROM (
  SELECT t.workspace_id, t.id AS target_id
  FROM unnest($1::uuid[], $2::uuid[]) AS e (workspace_id, id)
  JOIN targets t ON t.workspace_id = e.workspace_id AND t.id = e.id
  UNION
  SELECT a.workspace_id, a.target_id
  FROM unnest($3::uuid[], $4::uuid[]) AS e (workspace_id, id)
  JOIN assets a ON a.workspace_id = e.workspace_id AND a.id = e.id
) AS touched
ORDER BY workspace_id, target_id
ON CONFLICT (workspace_id, target_id) DO UPDATE SET
  stale_since = coalesce(s.stale_since, excluded.stale_since), marks = s.marks + 1
"""

# What is greatest stays, so the order in which runs come does not matter. The end of a run marks its targets:
# some of what it changed, the severity of a finding for instance, has no event of its own.
_NOTE_RUNS: Final = """
INSERT INTO target_summaries AS s (workspace_id, target_id, last_run_id, last_run_at, scanned_at, marks)
SELECT DISTINCT ON (r.workspace_id, r.target_id) r.workspace_id, r.target_id, h.id, h.created_at,
       max(h.closed_at) FILTER (WHERE h.status = 'completed') OVER (PARTITION BY r.workspace_id, r.target_id),
       max((h.closed_at IS NOT NULL)::int) OVER (PARTITION BY r.workspace_id, r.target_id)
FROM unnest($1::uuid[], $2::uuid[]) AS e (workspace_id, id)
JOIN job_histories h ON h.workspace_id = e.workspace_id AND h.id = e.id
JOIN run_targets r ON r.workspace_id = h.workspace_id AND r.run_id = h.id
ORDER BY r.workspace_id, r.target_id, h.created_at DESC, h.id DESC
ON CONFLICT (workspace_id, target_id) DO UPDATE SET
  last_run_id = CASE WHEN (excluded.last_run_at, excluded.last_run_id) < (s.last_run_at, s.last_run_id)
                     THEN s.last_run_id ELSE excluded.last_run_id END,
  last_run_at = greatest(s.last_run_at, excluded.last_run_at),
  scanned_at = greatest(s.scanned_at, excluded.scanned_at),
  stale_since = CASE WHEN excluded.marks = 0 THEN s.stale_since
                     ELSE coalesce(s.stale_since, excluded.stale_since) END,
  marks = s.marks + excluded.marks
"""

_REBUILD: Final = """
INSERT INTO target_summaries AS s (workspace_id, target_id, last_run_id, last_run_at, scanned_at)
SELECT DISTINCT ON (t.workspace_id, t.id) t.workspace_id, t.id, h.id, h.created_at,
       max(h.closed_at) FILTER (WHERE h.status = 'completed') OVER (PARTITION BY t.workspace_id, t.id)
FROM targets t
LEFT JOIN run_targets r ON r.workspace_id = t.workspace_id AND r.target_id = t.id
LEFT JOIN job_histories h ON h.workspace_id = r.workspace_id AND h.id = r.run_id
WHERE t.deleted_at IS NULL
ORDER BY t.workspace_id, t.id, h.created_at DESC NULLS LAST, h.id DESC
ON CONFLICT (workspace_id, target_id) DO UPDATE SET
  last_run_id = excluded.last_run_id, last_run_at = excluded.last_run_at, scanned_at = excluded.scanned_at,
  stale_since = coalesce(s.stale_since, excluded.stale_since), marks = s.marks + 1
"""

_STALE: Final = """
SELECT workspace_id, target_id, marks FROM target_summaries
WHERE stale_since IS NOT NULL ORDER BY stale_since LIMIT $1
"""

# First all is counted, then the rows are locked: the lane never waits for a count. Rows that it holds are
# passed over; they stay stale. What was marked meanwhile goes to the end of the queue.
_COUNT: Final = """
WITH counted AS MATERIALIZED (
  SELECT g.workspace_id, g.target_id, g.marks, live.*, open.*
  FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS g (workspace_id, target_id, marks)
  CROSS JOIN LATERAL (
    SELECT count(*) AS assets,
           coalesce(sum((SELECT count(*) FROM ports p WHERE p.workspace_id = a.workspace_id
                         AND p.asset_id = a.id AND p.closed_at IS NULL)), 0) AS ports,
           coalesce(sum((SELECT count(*) FROM asset_services s WHERE s.workspace_id = a.workspace_id
                         AND s.asset_id = a.id AND s.closed_at IS NULL)), 0) AS services
    FROM assets a
    WHERE a.workspace_id = g.workspace_id AND a.target_id = g.target_id AND a.gone_at IS NULL
  ) AS live
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE v.severity = 'info') AS info,
           count(*) FILTER (WHERE v.severity = 'low') AS low,
           count(*) FILTER (WHERE v.severity = 'medium') AS medium,
           count(*) FILTER (WHERE v.severity = 'high') AS high,
           count(*) FILTER (WHERE v.severity = 'critical') AS critical
    FROM assets a
    JOIN vulnerabilities v ON v.workspace_id = a.workspace_id AND v.asset_id = a.id
    WHERE a.workspace_id = g.workspace_id AND a.target_id = g.target_id AND v.status = 'open'
  ) AS open
), held AS MATERIALIZED (
  SELECT s.workspace_id, s.target_id, s.marks = c.marks AS is_current
  FROM counted c
  JOIN target_summaries s ON s.workspace_id = c.workspace_id AND s.target_id = c.target_id
  ORDER BY s.workspace_id, s.target_id
  FOR UPDATE OF s SKIP LOCKED
)
UPDATE target_summaries s SET
  assets = c.assets, ports = c.ports, services = c.services, findings_info = c.info, findings_low = c.low,
  findings_medium = c.medium, findings_high = c.high, findings_critical = c.critical,
  refreshed_at = clock_timestamp(), stale_since = CASE WHEN NOT held.is_current THEN clock_timestamp() END
FROM counted c
JOIN held ON held.workspace_id = c.workspace_id AND held.target_id = c.target_id
WHERE s.workspace_id = c.workspace_id AND s.target_id = c.target_id
"""

_COLUMNS: Final = """
  coalesce(s.assets, 0) AS assets, coalesce(s.ports, 0) AS ports, coalesce(s.services, 0) AS services,
  coalesce(s.findings_info, 0) AS info, coalesce(s.findings_low, 0) AS low,
  coalesce(s.findings_medium, 0) AS medium, coalesce(s.findings_high, 0) AS high,
  coalesce(s.findings_critical, 0) AS critical
"""

_OF_TARGET: Final = f"""
SELECT t.id AS target_id, t.value, {_COLUMNS}, s.scanned_at, s.refreshed_at,
       coalesce(s.stale_since, CASE WHEN s.target_id IS NULL THEN t.created_at END) AS stale_since,
       h.id AS run_id, h.name AS run_name, h.status AS run_status, h.created_at AS run_created_at,
       h.closed_at AS run_closed_at
FROM targets t
LEFT JOIN target_summaries s ON s.workspace_id = t.workspace_id AND s.target_id = t.id
LEFT JOIN job_histories h ON h.workspace_id = s.workspace_id AND h.id = s.last_run_id
WHERE t.workspace_id = $1 AND t.id = $2 AND t.deleted_at IS NULL
"""

_OF_WORKSPACE: Final = """
SELECT count(*) AS targets, coalesce(sum(s.assets), 0)::bigint AS assets,
       coalesce(sum(s.ports), 0)::bigint AS ports, coalesce(sum(s.services), 0)::bigint AS services,
       coalesce(sum(s.findings_info), 0)::bigint AS info, coalesce(sum(s.findings_low), 0)::bigint AS low,
       coalesce(sum(s.findings_medium), 0)::bigint AS medium,
       coalesce(sum(s.findings_high), 0)::bigint AS high,
       coalesce(sum(s.findings_critical), 0)::bigint AS critical,
       max(s.scanned_at) AS scanned_at,
       min(coalesce(s.stale_since, CASE WHEN s.target_id IS NULL THEN t.created_at END)) AS stale_since,
       (SELECT count(*) FROM job_histories h WHERE h.workspace_id = $1 AND h.closed_at IS NULL) AS runs_open
FROM targets t
LEFT JOIN target_summaries s ON s.workspace_id = t.workspace_id AND s.target_id = t.id
WHERE t.workspace_id = $1 AND t.deleted_at IS NULL
"""


async def mark(conn: Connection, touched: Touched) -> None:
    """Marks the summaries of targets as stale, and notes their newest runs. Harmless to repeat."""
    if touched.targets or touched.assets:
        await conn.execute(_MARK, *_columns(touched.targets), *_columns(touched.assets))
    if touched.runs:
        await conn.execute(_NOTE_RUNS, *_columns(touched.runs))


async def rebuild(conn: Connection) -> int:
    """Has the summary of every target made anew from the truth; returns of how many. Harmless to repeat.

    It reads all targets and runs: for a person who has a reason to doubt them.
    """
    status = await conn.execute(_REBUILD)
    return int(status.rpartition(" ")[2])


async def refresh(conn: Connection, limit: int) -> int:
    """Counts up to `limit` stale summaries anew, those first that are stale for longest; returns how many.

    One at a time may do it: an older count must not come after a newer one. What became stale again
    meanwhile stays so. Index: target_summaries_stale.
    """
    stale = await conn.fetch(_STALE, limit)
    if not stale:
        return 0
    status = await conn.execute(
        _COUNT,
        [row["workspace_id"] for row in stale],
        [row["target_id"] for row in stale],
        [row["marks"] for row in stale],
    )
    return int(status.rpartition(" ")[2])


async def of_target(conn: Connection, workspace_id: UUID, target_id: UUID) -> Record:
    """The summary of one target. Index: the primary keys.

    Raises:
        NotFound: `target.not_found`.
    """
    row = await conn.fetchrow(_OF_TARGET, workspace_id, target_id)
    if row is None:
        raise NotFound("no such target", code="target.not_found")
    return row


async def of_workspace(conn: Connection, workspace_id: UUID) -> Record:
    """The sum of the summaries of a workspace. Indexes: the primary keys, job_histories_open_of."""
    (row,) = await conn.fetch(_OF_WORKSPACE, workspace_id)
    return row


def _columns(pairs: Collection[tuple[UUID, UUID]]) -> tuple[list[UUID], list[UUID]]:
    return [workspace_id for workspace_id, _ in pairs], [each for _, each in pairs]
