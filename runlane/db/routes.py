"""Routes: which task queue serves the jobs of a step, and what to do when nobody serves it any more.

A class is a workspace's own workers, those of one of its internal networks, or the shared ones. It is live
while a worker of it is on line. Jobs at addresses inside (`jobs.own_only`) are for own workers only: a shared
one stands in the platform's network and could but refuse them. Jobs already on the queue of a dead class are
taken back in their rows first; the activity is forgotten only then, when nothing of the batch is left in it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import nudges
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.pool import Connection
from runlane.waiting import no_worker

NO_NETWORK: Final = UUID(int=0)
"""Stands for the network of ordinary targets where a list has to name it."""

OWN_ONLY: Final = UUID(int=1)
"""Stands in such a list for targets in no network that shared workers may not contact."""

PLACE: Final = f"""coalesce(network_id, CASE WHEN own_only THEN '{OWN_ONLY}' ELSE '{NO_NETWORK}' END::uuid)"""
"""Where a job's target is, as such a list names it: a network, or one of the two above."""

_SLOTS = """
SELECT scope, network_id, sum(coalesce((slots ->> $2)::int, 1))::int AS slots
FROM workers
WHERE status = 'online' AND deleted_at IS NULL AND $2 = ANY(toolsets)
  AND (workspace_id = $1 OR scope = 'shared')
GROUP BY scope, network_id
"""

# A row that somebody holds is being claimed or cancelled: it is not stranded.
_TAKE_BACK = f"""
UPDATE jobs SET dispatch_id = NULL
WHERE (id, workspace_id) IN (
  SELECT j.id, j.workspace_id
  FROM dispatches d
  JOIN jobs j ON j.dispatch_id = d.id AND j.{LIVE_JOB} AND j.status = {PENDING}
  WHERE d.run_id = $1 AND d.step_id = $2 AND d.workflow_id = $3 AND d.closed_at IS NULL
    AND d.task_queue = ANY($4::text[])
  FOR UPDATE OF j SKIP LOCKED
)
"""

_DEAD = f"""
SELECT place, n.name
FROM (SELECT DISTINCT {PLACE} AS place FROM jobs
      WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB} AND status = {PENDING}) AS waiting
LEFT JOIN internal_networks n ON n.id = place
WHERE place <> ALL($3::uuid[])
"""


@dataclass(frozen=True, slots=True)
class Routes:
    """Where jobs of a step go. `slots`: of live workers that the workspace allows, by scope and network."""

    workspace_id: UUID
    toolset: str
    slots: Mapping[tuple[str, UUID | None], int]

    @property
    def is_served(self) -> bool:
        """Whether any class that the step's jobs may be in is live."""
        return sum(self.slots.values()) > 0

    @property
    def live_places(self) -> list[UUID]:
        """Places whose jobs a live worker may take."""
        live = {network or NO_NETWORK for (_, network), slots in self.slots.items() if slots}
        return sorted(live | {OWN_ONLY} if self.slots.get(("workspace", None)) else live)

    @property
    def live_queues(self) -> set[str]:
        """Task queues that a live worker polls."""
        return {
            names.shared_scan_queue(self.toolset)
            if scope == "shared"
            else names.scan_queue(self.workspace_id, self.toolset, network)
            for (scope, network), slots in self.slots.items()
            if slots
        }

    def queue_of(self, place: UUID) -> str:
        """Own workers first; shared ones for ordinary targets only, and only if live."""
        return self.route_of(place)[0]

    def route_of(self, place: UUID) -> tuple[str, int]:
        """The queue of a place, and the slots of live workers that poll it."""
        network_id = None if place in (NO_NETWORK, OWN_ONLY) else place
        own = self.slots.get(("workspace", network_id), 0)
        shared = self.slots.get(("shared", None), 0) if place == NO_NETWORK else 0
        if own == 0 and shared > 0:
            return names.shared_scan_queue(self.toolset), shared
        return names.scan_queue(self.workspace_id, self.toolset, network_id), own

    def nobody(self, place: UUID, network: str | None) -> str:
        """The words for a place that no live worker serves; `network` is its name."""
        is_own_only = place == OWN_ONLY and NO_NETWORK in self.live_places
        return no_worker(self.toolset, network, is_own_only=is_own_only)


async def routes_of(conn: Connection, workspace_id: UUID, toolset: str, *, allow_shared: bool) -> Routes:
    """Reads which classes are live."""
    rows = await conn.fetch(_SLOTS, workspace_id, toolset)
    slots = {(row["scope"], row["network_id"]): row["slots"] for row in rows}
    if not allow_shared:
        slots = {key: count for key, count in slots.items() if key[0] != "shared"}
    return Routes(workspace_id, toolset, slots)


@dataclass(frozen=True, slots=True)
class Owned:
    """A step, and the workflow whose batches of it are meant."""

    run_id: UUID
    step_id: str
    workflow_id: str


async def take_back(conn: Connection, owned: Owned, routes: Routes, queues: Collection[str]) -> None:
    """Takes jobs back from the queues of dead classes, if one is live; they are dispatched anew at once.

    The workflow is asked to look: it finds the batches empty and stops waiting for them.
    """
    dead = set(queues) - routes.live_queues
    if not dead or not routes.is_served:
        return
    taken = await conn.execute(_TAKE_BACK, owned.run_id, owned.step_id, owned.workflow_id, sorted(dead))
    if taken != "UPDATE 0":
        await nudges.nudge_unheld(conn, [owned.workflow_id])


async def dead_classes(conn: Connection, run_id: UUID, step_id: str, routes: Routes) -> list[str]:
    """Says of each class that jobs of the step wait for and nobody serves that it is so."""
    rows = await conn.fetch(_DEAD, run_id, step_id, routes.live_places)
    return sorted({routes.nobody(row["place"], row["name"]) for row in rows})
