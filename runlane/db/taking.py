"""Taking: which due jobs of one step go into batches now, and what is left of it.

What may not go is decided in the statements that take rows, so that it never stands before what may: jobs of
a class that no live worker serves, those that a limit or the share of shared workers has no room for, and all
but one of the jobs that may be what ends workers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import rates
from runlane.db.guards import LIVE_JOB, PENDING
from runlane.db.limits import Asker, Room, leave_line, room_to_dispatch, wait_in_line
from runlane.db.pool import Connection, Record
from runlane.db.routes import NO_NETWORK, OWN_ONLY, PLACE, Owned, Routes, dead_classes, routes_of, take_back
from runlane.db.sharing import SHARE_LOOK_S, Sharer, use_of
from runlane.runs import BATCHES_PER_SLOT, BatchLimits, batch_size
from runlane.tools.workloads import goes_alone
from runlane.waiting import no_worker

COUNTED: Final = 10_000
"""Due jobs are counted up to here at each call. With more of them batches are as large as they may be,
however many slots there are: the end of a step is spread evenly, its beginning need not be."""

SUSPECT_LOOK_S: Final = 60.0
"""A suspect waits until no other one of its class is out; that may be another run's."""

DEAD_LOOK_S: Final = 600.0
"""Jobs of a class that nobody serves are looked at again after this, should nobody call when one comes."""

SUSPECT: Final = "losses >= 2"
"""A job that was lost with its worker twice. Such jobs are dispatched one after the other, so that the one
that ends workers is alone with its deed and the others finish. As in the partial index `jobs_suspect`."""

_OPEN: Final = f"""run_id = $1 AND step_id = $2 AND {LIVE_JOB} AND status = {PENDING} AND dispatch_id IS NULL
    AND ($3 OR {PLACE} = ANY($4::uuid[]))
    AND (target_id = ANY($5::uuid[]) OR network_id = ANY($5)) IS NOT TRUE"""

_DUE = f"""
SELECT count(*) FROM (
  SELECT 1 FROM jobs
  WHERE {_OPEN} AND NOT ({SUSPECT}) AND due_at <= clock_timestamp()
  LIMIT $6
) due
"""

_TAKE = f"""
SELECT id, priority, {PLACE} AS place, alone, target_id, network_id FROM jobs
WHERE {_OPEN} AND NOT ({SUSPECT}) AND due_at <= clock_timestamp()
ORDER BY priority, created_at, id
LIMIT $6
FOR UPDATE SKIP LOCKED
"""

_LOCK_SUSPECTS = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_IS_SUSPECT_OUT = f"""
SELECT EXISTS (SELECT 1 FROM jobs o
               WHERE o.workspace_id = $1 AND o.toolset = $2 AND o.{LIVE_JOB} AND o.{SUSPECT}
                 AND o.dispatch_id IS NOT NULL)
"""

_TAKE_SUSPECT = f"""
SELECT id, priority, {PLACE} AS place, alone FROM jobs
WHERE {_OPEN} AND {SUSPECT} AND due_at <= clock_timestamp()
ORDER BY priority, created_at, id
LIMIT 1
FOR UPDATE SKIP LOCKED
"""

_LIVE = f"""
SELECT EXISTS (SELECT 1 FROM jobs WHERE run_id = $1 AND step_id = $2 AND {LIVE_JOB})
"""

_NEXT_DUE = f"""
SELECT extract(epoch FROM min(due_at) FILTER (WHERE NOT ({SUSPECT})) - clock_timestamp())::float8 AS plain,
       extract(epoch FROM min(due_at) FILTER (WHERE {SUSPECT}) - clock_timestamp())::float8 AS suspect
FROM jobs
WHERE {_OPEN}
"""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What is left of a step after the call."""

    step_id: str
    is_live: bool
    """A job is pending or in progress."""
    has_more: bool = False
    """Due jobs were left for want of room."""
    next_due_s: float | None = None
    """Seconds until the next back-off ends, when nothing due is left that may go."""


@dataclass(frozen=True, slots=True)
class StepCall:
    """The step that is asked about, and who asks."""

    run_id: UUID
    workspace_id: UUID
    step_id: str
    workflow_id: str
    least_batch: int


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one batch, and the queue of their class."""

    rows: Sequence[Record]
    task_queue: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Jobs that go, as batches. `due` counts those that were due; more than that change nothing."""

    groups: Sequence[Group] = ()
    due: int = 0
    look_s: float | None = None
    """Due jobs were left that have to wait for room: look again after this."""
    waits_for: Sequence[str] = ()
    """What holds such jobs back, in words."""

    @property
    def jobs(self) -> int:
        """How many go."""
        return sum(len(group.rows) for group in self.groups)


@dataclass(slots=True)
class _Gate:
    """Which open rows may go: of any place, or of these."""

    is_open_to_all: bool
    places: list[UUID]
    closed: list[UUID] = field(default_factory=list)
    """Targets and networks to which nothing may go now."""
    look_s: float | None = None
    waits_for: list[str] = field(default_factory=list)

    def hold(self, look_s: float, why: str) -> None:
        self.look_s = look_s
        self.waits_for.append(why)


async def has_live_jobs(conn: Connection, run_id: UUID, step_id: str) -> bool:
    """Whether a job of the step is pending or in progress. Uses `jobs_live`."""
    return bool(await conn.fetchval(_LIVE, run_id, step_id))


class StepTaker:
    """Takes the due jobs of one step, whose row is `step`."""

    def __init__(self, conn: Connection, call: StepCall, step: Record) -> None:
        self._conn = conn
        self._call = call
        self._step = step
        self._most = BatchLimits(step["max_batch"], step["large_max_batch"]).most(step["jobs_total"])
        self._gate = _Gate(is_open_to_all=True, places=[])
        self._routes = Routes(call.workspace_id, step["toolset"], {})

    async def take(self, room: int) -> Taken:
        """Locks the jobs of up to `room` batches; the caller writes their dispatch."""
        toolset, workspace_id = self._step["toolset"], self._call.workspace_id
        allow_shared = self._step["allow_shared"]
        self._routes = routes = await routes_of(self._conn, workspace_id, toolset, allow_shared=allow_shared)
        owned = Owned(self._call.run_id, self._call.step_id, self._call.workflow_id)
        await take_back(self._conn, owned, routes, self._step["queues"])
        self._gate = _Gate(not routes.is_served, routes.live_places)
        shared_room = await self._shared_room()
        rated = await self._rated()
        limit = await self._limit(room)
        if room <= 0 or limit.jobs == 0 or workspace_id in self._gate.closed:
            return self._taken([], 0)
        return await self._take(room, limit, shared_room, rated)

    async def _rated(self) -> rates.Room | None:
        """What rates leave; what they close is not taken, and jobs of it wait for a call."""
        if not self._step["has_rates"]:
            return None
        workspace_id = self._call.workspace_id
        step = (self._call.run_id, self._call.step_id)
        left = await rates.room_of(self._conn, workspace_id, self._step["tool_id"], step, asking=True)
        self._gate.closed = left.closed()
        if workspace_id in self._gate.closed or (self._gate.closed and not await self._due(1)):
            uses = await rates.uses_of(self._conn, workspace_id)
            self._gate.hold(rates.LOOK_S, "; ".join(rates.reached(uses)) or "shares of a rate are asked for")
        return left

    async def _take(self, room: int, limit: Room, shared_room: int | None, rated: rates.Room | None) -> Taken:
        slots = sum(self._routes.slots.values())
        spread = BATCHES_PER_SLOT * max(1, slots) * self._most
        enough = max(min(spread, COUNTED), room * self._most) + 1
        due = await self._due(enough)
        is_plenty = due == enough
        size = self._most if is_plenty else batch_size(due, slots, self._most, self._call.least_batch)
        if limit.most is not None:
            size = max(1, min(size, limit.most // BATCHES_PER_SLOT))
        if rated is not None and goes_alone(self._step["tool_id"]):
            size = 1
        wanted = room * size if limit.jobs is None else min(room * size, limit.jobs)
        rows = await self._conn.fetch(_TAKE, *self._open, wanted) if due else []
        fitting = rows if rated is None else rated.fitting(rows)
        batches = list(_grouped(fitting, size))[:room]
        if len(batches) < room and (limit.jobs is None or len(rows) < limit.jobs):
            batches += await self._suspect()
        if limit.jobs is not None and len(rows) == limit.jobs and due > len(rows):
            self._gate.look_s = limit.wait_s  # what was taken comes back sooner, and then there is room
        return self._taken(self._routed(batches, shared_room), due)

    @property
    def _open(self) -> tuple[object, ...]:
        gate = self._gate
        return self._call.run_id, self._call.step_id, gate.is_open_to_all, gate.places, gate.closed

    async def _due(self, enough: int) -> int:
        return int(await self._conn.fetchval(_DUE, *self._open, enough))

    async def _shared_room(self) -> int | None:
        """Batches that may go to shared workers; None: as many as you like."""
        queue = self._routes.queue_of(NO_NETWORK)
        if queue != names.shared_scan_queue(self._step["toolset"]):
            return None
        use = await use_of(self._conn, Sharer(self._call.workspace_id, self._step["toolset"]))
        if use.room == 0:
            self._gate.places.remove(NO_NETWORK)
            self._gate.hold(SHARE_LOOK_S, f"{use.out} of {use.most} shared slots while others wait")
        return use.room

    async def _limit(self, room: int) -> Room:
        if not self._step["is_limited"]:
            return Room()
        call = self._call
        asker = Asker(call.workflow_id, call.workspace_id, self._step["toolset"], self._step["priority"])
        limit = await room_to_dispatch(self._conn, asker)
        if limit.jobs == 0 and await self._due(1):
            self._gate.hold(limit.wait_s, limit.reached or "")
            if room > 0 or not self._step["queues"]:
                await wait_in_line(self._conn, asker, limit)
        else:
            await leave_line(self._conn, asker, limit)
        return limit

    async def _suspect(self) -> list[list[Record]]:
        """One job that may be what ends workers, if none of its class is out."""
        if not self._step["has_suspects"]:
            return []
        workspace_id, toolset = self._call.workspace_id, self._step["toolset"]
        await self._conn.execute(_LOCK_SUSPECTS, f"suspects/{workspace_id}/{toolset}")
        if await self._conn.fetchval(_IS_SUSPECT_OUT, workspace_id, toolset):
            return []
        rows = await self._conn.fetch(_TAKE_SUSPECT, *self._open)
        return [rows] if rows else []

    def _routed(self, batches: Sequence[Sequence[Record]], shared_room: int | None) -> list[Group]:
        shared_queue = names.shared_scan_queue(self._step["toolset"])
        groups: list[Group] = []
        left = len(batches) if shared_room is None else shared_room
        for rows in batches:
            queue = self._routes.queue_of(rows[0]["place"])
            if queue == shared_queue:
                left -= 1
                if left < 0:
                    continue
            groups.append(Group(rows, queue))
        return groups

    def _taken(self, groups: Sequence[Group], due: int) -> Taken:
        return Taken(groups, due, self._gate.look_s, self._gate.waits_for)

    async def rest(self, taken: Taken, room: int) -> StepWork:
        """What is left of the step."""
        step_id = self._call.step_id
        if taken.due > taken.jobs and taken.look_s is None:
            return StepWork(step_id, is_live=True, has_more=True)
        if not taken.jobs and not await has_live_jobs(self._conn, self._call.run_id, step_id):
            return StepWork(step_id, is_live=False)
        next_due_s = await self._next_due(taken)
        has_more = room == 0 and next_due_s is not None and next_due_s <= 0
        return StepWork(step_id, is_live=True, has_more=has_more, next_due_s=None if has_more else next_due_s)

    async def _next_due(self, taken: Taken) -> float | None:
        row = await self._conn.fetchrow(_NEXT_DUE, *self._open)
        plain, suspect = (row["plain"], row["suspect"]) if row is not None else (None, None)
        if taken.look_s is not None and (plain is None or plain <= 0):
            plain = taken.look_s
        if suspect is not None and await self._conn.fetchval(
            _IS_SUSPECT_OUT, self._call.workspace_id, self._step["toolset"]
        ):
            suspect = max(suspect, SUSPECT_LOOK_S)
        elsewhere = None if self._gate.is_open_to_all or not self._has_other_places else DEAD_LOOK_S
        return min((each for each in (plain, suspect, elsewhere) if each is not None), default=None)

    @property
    def _has_other_places(self) -> bool:
        """Whether jobs may wait for another class than that of ordinary targets."""
        has_own_only: bool = self._step["has_own_only"] and OWN_ONLY not in self._routes.live_places
        return has_own_only or bool(self._step["has_networks"])

    async def missing(self) -> list[str]:
        """Which classes of the step's waiting jobs nobody serves, in words."""
        if not self._has_other_places:
            return [] if self._routes.is_served else [no_worker(self._step["toolset"])]
        return await dead_classes(self._conn, self._call.run_id, self._call.step_id, self._routes)


def _grouped(rows: Iterable[Record], size: int) -> Iterable[list[Record]]:
    """Batches of one priority and one place, in order; a job marked alone is a batch by itself."""
    batch: list[Record] = []
    for row in rows:
        fits = (
            batch
            and not row["alone"]
            and not batch[0]["alone"]
            and len(batch) < size
            and batch[0]["priority"] == row["priority"]
            and batch[0]["place"] == row["place"]
        )
        if batch and not fits:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
