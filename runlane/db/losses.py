"""Losses: which workers went away, when, and what a job has to do with it.

A job that was in hand each time a worker died may be what kills them. It is told from bad luck by rows: a
loss near an outage of a server, or one of several that befell the fleet at once, says nothing about the job.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.jobs import Outcome

NEAR_S: Final = 60
"""Losses within this of each other, or of an outage, belong together."""

FLEET_SHARE: Final = 0.3
"""More than this of a class of workers, two at least, lost together: the fleet's fault and no job's."""

_KEPT_DAYS: Final = 7
_SAME_LOSS_S: Final = 10

_SAME_CLASS: Final = """o.scope = w.scope AND o.workspace_id IS NOT DISTINCT FROM w.workspace_id
      AND o.network_id IS NOT DISTINCT FROM w.network_id"""

_NOTE = f"""
WITH expired AS (
  DELETE FROM worker_losses WHERE lost_at < clock_timestamp() - interval '{_KEPT_DAYS} days'
)
INSERT INTO worker_losses (worker_id, live)
SELECT w.id, 1 + (
  SELECT count(*) FROM workers o
  WHERE o.id <> w.id AND o.status IN ('online', 'draining') AND o.deleted_at IS NULL
    AND {_SAME_CLASS} AND o.toolsets && w.toolsets)
FROM workers w
WHERE w.id = ANY($1::uuid[]) AND NOT EXISTS (
  SELECT FROM worker_losses l
  WHERE l.worker_id = w.id AND l.lost_at > clock_timestamp() - interval '{_SAME_LOSS_S} seconds')
"""

# The workers that went down with the job itself are no sign of an outage: a job that kills one after the
# other would otherwise hide behind its victims.
_LIVES = f"""
WITH loss AS (
  SELECT a.job_id, a.incarnation, a.worker_id, j.toolset, coalesce(a.ended_at, clock_timestamp()) AS lost_at
  FROM job_attempts a
  JOIN jobs j ON j.id = a.job_id
  WHERE a.job_id = ANY($1::uuid[]) AND (a.outcome = '{Outcome.LOST}' OR a.ended_at IS NULL)
)
SELECT loss.job_id, count(DISTINCT loss.incarnation)::int AS lives
FROM loss
JOIN workers w ON w.id = loss.worker_id
WHERE NOT EXISTS (
    SELECT FROM outages u
    WHERE u.began_at <= loss.lost_at + interval '{NEAR_S} seconds'
      AND coalesce(u.ended_at, 'infinity') >= loss.lost_at - interval '{NEAR_S} seconds')
  AND NOT EXISTS (
    SELECT FROM worker_losses l
    JOIN workers o ON o.id = l.worker_id AND {_SAME_CLASS} AND loss.toolset = ANY(o.toolsets)
    WHERE l.lost_at BETWEEN loss.lost_at - interval '{NEAR_S} seconds'
                        AND loss.lost_at + interval '{NEAR_S} seconds'
      AND l.worker_id NOT IN (SELECT mine.worker_id FROM loss mine WHERE mine.job_id = loss.job_id)
    HAVING count(*) > 0 AND 1 + count(DISTINCT l.worker_id) > {FLEET_SHARE} * max(l.live))
GROUP BY loss.job_id
"""

_BEGIN_OUTAGE = """
INSERT INTO outages (server, began_at)
SELECT $1, clock_timestamp() - make_interval(secs => $2)
WHERE NOT EXISTS (SELECT FROM outages WHERE server = $1 AND ended_at IS NULL)
"""

_END_OUTAGES = "UPDATE outages SET ended_at = clock_timestamp() WHERE server = $1 AND ended_at IS NULL"

_FORGET_OUTAGES = f"DELETE FROM outages WHERE ended_at < clock_timestamp() - interval '{_KEPT_DAYS} days'"


async def note_losses(conn: Connection, worker_ids: Sequence[UUID]) -> None:
    """Writes down that these workers were lost just now; one loss that is noticed twice counts once."""
    if worker_ids:
        await conn.execute(_NOTE, sorted(set(worker_ids)))


async def lives_lost(conn: Connection, job_ids: Sequence[UUID]) -> Mapping[UUID, int]:
    """In how many lives of workers each job was lost, its open attempt included, outside of any outage."""
    if not job_ids:
        return {}
    rows = await conn.fetch(_LIVES, list(job_ids))
    return {row["job_id"]: row["lives"] for row in rows}


async def begin_outage(conn: Connection, server: str, since_s: float) -> None:
    """Writes down that a server does not answer since so long ago. Several observers may say so."""
    await conn.execute(_FORGET_OUTAGES)
    await conn.execute(_BEGIN_OUTAGE, server, since_s)


async def end_outages(conn: Connection, server: str) -> None:
    """Writes down that a server answers: whatever an observer, perhaps dead by now, began is over."""
    await conn.execute(_END_OUTAGES, server)
