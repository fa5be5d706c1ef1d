"""Shared workers: how many of their slots one workspace may hold while others wait.

A slot is a batch at work. Temporal gives the next free slot to each workspace in turn; this keeps one whose
batches take hours from ending up with all of them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import floor
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.guards import IN_PROGRESS, LIVE_JOB, PENDING
from runlane.db.pool import Connection

SHARE_LOOK_S: Final = 300.0
"""A step that its share holds back is looked at again after this; the end of its own batches comes before."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_USE = f"""
SELECT (SELECT coalesce(sum(coalesce((w.slots ->> $3)::int, 1)), 0)::int FROM workers w
        WHERE w.scope = 'shared' AND w.status = 'online' AND w.deleted_at IS NULL
          AND $3 = ANY(w.toolsets)) AS slots,
       (SELECT shared_slot_share FROM workspaces WHERE id = $2)::float8 AS share,
       count(*) FILTER (WHERE d.workspace_id = $2)::int AS out,
       count(*) FILTER (WHERE d.workspace_id = $2 AND EXISTS (
         SELECT FROM jobs j WHERE j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {IN_PROGRESS}))::int
         AS running,
       coalesce(bool_or(d.workspace_id <> $2 AND EXISTS (
         SELECT FROM jobs j WHERE j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {PENDING})), false)
         AS others_wait
FROM dispatches d
WHERE d.task_queue = $1 AND d.closed_at IS NULL AND d.id <> ALL($4::uuid[])
"""


@dataclass(frozen=True, slots=True)
class SharedUse:
    """What a workspace has of the slots of a shared queue."""

    slots: int
    share: float
    out: int
    """Its batches that were dispatched and have not ended."""
    running: int
    """Those of them that a worker has claimed."""
    others_wait: bool
    """Another workspace has a batch that no worker has claimed."""

    @property
    def most(self) -> int:
        """Slots that it may hold while others wait: its share, one at least."""
        return max(1, floor(self.slots * self.share))

    @property
    def may_claim(self) -> bool:
        """Whether it may take one more slot."""
        return not self.others_wait or self.running < self.most

    @property
    def room(self) -> int | None:
        """Batches that it may still dispatch; None: as many as it likes."""
        return max(0, self.most - self.out) if self.others_wait else None


@dataclass(frozen=True, slots=True)
class Sharer:
    """A workspace that uses the shared workers of a tool set."""

    workspace_id: UUID
    toolset: str


async def use_of(conn: Connection, sharer: Sharer, *, but: Collection[UUID] = ()) -> SharedUse:
    """Reads what a workspace has of a shared queue, `but` these batches. Uses `dispatches_queued`."""
    queue = names.shared_scan_queue(sharer.toolset)
    (row,) = await conn.fetch(_USE, queue, sharer.workspace_id, sharer.toolset, list(but))
    return SharedUse(**dict(row))


async def use_to_claim(conn: Connection, sharer: Sharer, dispatch_id: UUID) -> SharedUse:
    """As `use_of`, for a claim of one batch: claims on the same queue follow each other until they end."""
    await conn.execute(_LOCK, names.shared_scan_queue(sharer.toolset))
    return await use_of(conn, sharer, but=[dispatch_id])
