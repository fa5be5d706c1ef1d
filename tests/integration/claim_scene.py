"""Workspaces, workers, jobs and limits in any mix, and a plain model of what may be given out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor
from uuid import UUID, uuid4

from hypothesis import strategies as st

from runlane import names
from runlane.db.claims import ClaimAnswer, ClaimRequest, claim
from runlane.db.pool import Pool

PRIORITIES = st.integers(0, 4)
STATES = st.sampled_from(["online", "online", "online", "draining", "offline"])


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A worker. `home`: its workspace; None: a shared one."""

    home: int | None
    in_network: bool
    is_probe: bool
    status: str
    slots: int


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job of one of the workspaces."""

    home: int
    priority: int
    in_network: bool
    has_target: bool


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """A limit. `home` None: of the tool set everywhere."""

    home: int | None
    of_toolset: bool
    cap: int | None
    rate: int | None


@dataclass(frozen=True, slots=True)
class ScenePlan:
    """Two workspaces and all that is in them."""

    allow_shared: tuple[bool, bool]
    share: float
    is_paused: tuple[bool, bool]
    workers: list[WorkerPlan]
    jobs: list[JobPlan]
    limits: list[LimitPlan]


HOMES = st.integers(0, 1)
WORKERS = st.builds(
    WorkerPlan,
    home=st.one_of(st.none(), HOMES),
    in_network=st.booleans(),
    is_probe=st.sampled_from([True, True, True, False]),
    status=STATES,
    slots=st.integers(1, 4),
)
JOBS = st.builds(
    JobPlan,
    home=HOMES,
    priority=PRIORITIES,
    in_network=st.sampled_from([False, False, True]),
    has_target=st.sampled_from([True, True, True, False]),
)
LIMITS = st.builds(
    LimitPlan,
    home=st.one_of(st.none(), HOMES),
    of_toolset=st.booleans(),
    cap=st.one_of(st.none(), st.integers(1, 6)),
    rate=st.one_of(st.none(), st.integers(1, 8)),
).filter(lambda plan: (plan.cap or plan.rate) is not None and (plan.home is not None or plan.of_toolset))
SCENES = st.builds(
    ScenePlan,
    allow_shared=st.tuples(st.booleans(), st.booleans()),
    share=st.sampled_from([0.25, 0.5, 1.0]),
    is_paused=st.tuples(*[st.sampled_from([False, False, False, True])] * 2),
    workers=st.lists(WORKERS, min_size=1, max_size=5),
    jobs=st.lists(JOBS, min_size=1, max_size=14),
    limits=st.lists(LIMITS, max_size=2, unique_by=lambda plan: (plan.home, plan.of_toolset)),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A pending job of a dispatch, as the model sees it."""

    job_id: UUID
    home: int
    in_network: bool
    has_target: bool


@dataclass(frozen=True, slots=True)
class Raced:
    """Bounds of what a claim may be given that races with another: some of `eligible`, in its order."""

    eligible: list[UUID]
    most: int

    def allows(self, got: list[UUID]) -> bool:
        """Whether an answer keeps within them."""
        return len(got) <= self.most and got == [job_id for job_id in self.eligible if job_id in got]


@dataclass(slots=True)
class Scene:
    """A scene in the database."""

    pool: Pool
    plan: ScenePlan
    workspaces: list[UUID] = field(default_factory=list)
    networks: list[UUID] = field(default_factory=list)
    runs: list[UUID] = field(default_factory=list)
    workers: list[tuple[UUID, UUID]] = field(default_factory=list)
    claims: list[int] = field(default_factory=lambda: [0, 0])
    """Claims that each workspace was given since the scene began."""

    async def set_up(self) -> None:
        """Writes the scene; what an earlier one left is out of play."""
        await self.pool.execute("DELETE FROM limits")
        await self.pool.execute("UPDATE workers SET status = 'offline'")
        await self.pool.execute("UPDATE dispatches SET closed_at = clock_timestamp() WHERE closed_at IS NULL")
        for allow_shared, is_paused in zip(self.plan.allow_shared, self.plan.is_paused, strict=True):
            await self._add_workspace(allow_shared=allow_shared, is_paused=is_paused)
        for worker in self.plan.workers:
            await self._add_worker(worker)
        for number, job in enumerate(self.plan.jobs):
            await self._add_job(number, job)
        for limit in self.plan.limits:
            await self.pool.execute(
                """INSERT INTO limits (workspace_id, toolset, max_in_progress, per_minute)
                   VALUES ($1, $2, $3, $4)""",
                None if limit.home is None else self.workspaces[limit.home],
                "probe" if limit.of_toolset else None,
                limit.cap,
                limit.rate,
            )

    async def _add_workspace(self, *, allow_shared: bool, is_paused: bool) -> None:
        workspace_id = await self.pool.fetchval(
            """INSERT INTO workspaces (name, allow_shared, shared_slot_share) VALUES ('w', $1, $2)
               RETURNING id""",
            allow_shared,
            self.plan.share,
        )
        self.workspaces.append(workspace_id)
        self.networks.append(
            await self.pool.fetchval(
                "INSERT INTO internal_networks (workspace_id, name) VALUES ($1, 'n') RETURNING id",
                workspace_id,
            )
        )
        run_id = await self.pool.fetchval(
            """INSERT INTO job_histories (workspace_id, name, definition, status, owner)
               VALUES ($1, 'r', '{}', 'running', 'me') RETURNING id""",
            workspace_id,
        )
        await self.pool.execute(
            """INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id, status,
                                      opened_at, scope_as_of, admitted_at)
               VALUES ($1, $2, 'a', 0, 'a', 'noop', 'running', now(), now(), now())""",
            workspace_id,
            run_id,
        )
        self.runs.append(run_id)
        if is_paused:
            await self.pool.execute(
                "INSERT INTO pauses (scope, workspace_id) VALUES ('workspace', $1)", workspace_id
            )

    async def _add_worker(self, plan: WorkerPlan) -> None:
        incarnation = uuid4()
        home = None if plan.home is None else self.workspaces[plan.home]
        network = self.networks[plan.home] if plan.home is not None and plan.in_network else None
        toolset = "probe" if plan.is_probe else "browser"
        worker_id = await self.pool.fetchval(
            """INSERT INTO workers (scope, workspace_id, network_id, name, token_digest, incarnation, status,
                                    toolsets, slots)
               VALUES ($1, $2, $3, 'w', $4, $5, $6, $7, $8) RETURNING id""",
            "shared" if home is None else "workspace",
            home,
            network,
            uuid4().bytes * 2,
            incarnation,
            plan.status,
            [toolset],
            {toolset: plan.slots},
        )
        self.workers.append((worker_id, incarnation))

    async def _add_job(self, number: int, plan: JobPlan) -> None:
        workspace_id = self.workspaces[plan.home]
        network = self.networks[plan.home] if plan.in_network else None
        target_id = None
        if plan.has_target:
            target_id = await self.pool.fetchval(
                """INSERT INTO targets (workspace_id, kind, value, network_id) VALUES ($1, 'domain', $2, $3)
                   RETURNING id""",
                workspace_id,
                f"t{number}.test",
                network,
            )
        await self.pool.execute(
            """INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, priority,
                                 target_id, network_id, subject_id, spec)
               VALUES ($1, $2, 'a', 'noop', 'probe', 'bench', $3, $4, $5, gen_random_uuid(), '{}')""",
            workspace_id,
            self.runs[plan.home],
            plan.priority,
            target_id,
            network,
        )

    async def dispatch_all(self, size: int) -> list[UUID]:
        """Puts every job into some batch of its workspace, whoever may take it; half of them are shared."""
        made: list[UUID] = []
        for home, run_id in enumerate(self.runs):
            rows = await self.pool.fetch(
                "SELECT id FROM jobs WHERE run_id = $1 AND dispatch_id IS NULL ORDER BY created_at, id",
                run_id,
            )
            ids = [row["id"] for row in rows]
            for start in range(0, len(ids), size):
                shared = (start // size) % 2 == 1
                queue = (
                    names.shared_scan_queue("probe")
                    if shared
                    else names.scan_queue(self.workspaces[home], "probe")
                )
                dispatch_id = await self.pool.fetchval(
                    """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id,
                                               call_number, task_queue, priority, size)
                       VALUES ($1, $2, 'a', 'w', 'w', 1, $3, 2, $4) RETURNING id""",
                    self.workspaces[home],
                    run_id,
                    queue,
                    len(ids[start : start + size]),
                )
                await self.pool.execute(
                    "UPDATE jobs SET dispatch_id = $1 WHERE id = ANY($2::uuid[])",
                    dispatch_id,
                    ids[start : start + size],
                )
                made.append(dispatch_id)
        return made

    async def claim(self, worker: int, dispatch_id: UUID, slots: int, key: str) -> ClaimAnswer:
        """Claims as a worker."""
        worker_id, incarnation = self.workers[worker]
        async with self.pool.acquire() as conn, conn.transaction():
            return await claim(conn, ClaimRequest(dispatch_id, key, worker_id, incarnation, slots))

    async def expected(self, worker: int, dispatch_id: UUID, slots: int) -> list[UUID]:
        """What the model says that a claim is answered now."""
        eligible = await self._eligible(worker, dispatch_id)
        if not eligible or not await self._has_share(dispatch_id, eligible[0].home):
            return []
        room = await self.room(eligible[0].home)
        return [job.job_id for job in eligible[: max(0, min(slots, room))]]

    async def raced(self, worker: int, dispatch_id: UUID, slots: int) -> Raced:
        """What the model says of a claim beside another one, whose rows it steps over."""
        expected = await self.expected(worker, dispatch_id, slots)
        eligible = [job.job_id for job in await self._eligible(worker, dispatch_id)]
        return Raced(eligible, len(expected))

    async def _eligible(self, worker: int, dispatch_id: UUID) -> list[Job]:
        return [job for job in await self._pending(dispatch_id) if self._may(worker, job)]

    async def _pending(self, dispatch_id: UUID) -> list[Job]:
        rows = await self.pool.fetch(
            """SELECT id, workspace_id, network_id, target_id FROM jobs
               WHERE dispatch_id = $1 AND status = 'pending' ORDER BY priority, created_at, id""",
            dispatch_id,
        )
        return [
            Job(
                row["id"],
                self.workspaces.index(row["workspace_id"]),
                row["network_id"] is not None,
                row["target_id"] is not None,
            )
            for row in rows
        ]

    def _may(self, worker: int, job: Job) -> bool:
        plan = self.plan.workers[worker]
        is_home = plan.home == job.home or (plan.home is None and self.plan.allow_shared[job.home])
        in_network = plan.in_network and plan.home is not None
        return (
            plan.status == "online"
            and plan.is_probe
            and is_home
            and in_network == job.in_network
            and job.has_target
            and not self.plan.is_paused[job.home]
        )

    async def _has_share(self, dispatch_id: UUID, home: int) -> bool:
        queue = await self.pool.fetchval("SELECT task_queue FROM dispatches WHERE id = $1", dispatch_id)
        if queue != names.shared_scan_queue("probe"):
            return True
        rows = await self.pool.fetch(
            """SELECT d.workspace_id, bool_or(j.status = 'pending') AS waits,
                      bool_or(j.status = 'in_progress') AS runs
               FROM dispatches d JOIN jobs j ON j.dispatch_id = d.id
               WHERE d.task_queue = $1 AND d.closed_at IS NULL AND d.id <> $2
               GROUP BY d.id, d.workspace_id""",
            queue,
            dispatch_id,
        )
        ours = self.workspaces[home]
        slots = sum(
            plan.slots
            for plan in self.plan.workers
            if plan.home is None and plan.is_probe and plan.status == "online"
        )
        others_wait = any(row["waits"] for row in rows if row["workspace_id"] != ours)
        running = sum(bool(row["runs"]) for row in rows if row["workspace_id"] == ours)
        return not others_wait or running < max(1, floor(slots * self.plan.share))

    async def room(self, home: int) -> int:
        """What limits leave a workspace."""
        rows = await self.pool.fetch(
            """SELECT workspace_id, count(*)::int AS jobs FROM jobs
               WHERE status = 'in_progress' AND workspace_id = ANY($1::uuid[]) GROUP BY 1""",
            self.workspaces,
        )
        running = {row["workspace_id"]: row["jobs"] for row in rows}
        rooms = [100]
        for limit in self.plan.limits:
            if limit.home not in (None, home):
                continue
            homes = range(2) if limit.home is None else [limit.home]
            if limit.cap is not None:
                rooms.append(limit.cap - sum(running.get(self.workspaces[each], 0) for each in homes))
            if limit.rate is not None:
                rooms.append(limit.rate - sum(self.claims[each] for each in homes))
        return min(rooms)

    def count(self, home: int, answers: Sequence[ClaimAnswer]) -> None:
        """Notes what was given."""
        self.claims[home] += sum(len(answer.jobs) for answer in answers)


async def live_networks(scene: Scene, home: int) -> set[UUID | None]:
    """Networks of a workspace, None for ordinary targets, whose jobs a live worker may take."""
    live: set[UUID | None] = set()
    for plan in scene.plan.workers:
        if plan.status != "online" or not plan.is_probe:
            continue
        if plan.home == home:
            live.add(scene.networks[home] if plan.in_network else None)
        elif plan.home is None and scene.plan.allow_shared[home]:
            live.add(None)
    return live


async def limit_room(scene: Scene, home: int) -> int:
    """What limits leave while nothing is in progress, less what the workspace before has out."""
    rooms = [100]
    for limit in scene.plan.limits:
        if limit.home not in (None, home):
            continue
        used = 0
        if limit.home is None and home == 1 and await live_networks(scene, 0):
            used = await scene.pool.fetchval(
                "SELECT count(*) FROM jobs WHERE run_id = $1 AND dispatch_id IS NOT NULL", scene.runs[0]
            )
        rooms += [number - used for number in (limit.cap, limit.rate) if number is not None]
    return min(rooms)


async def shared_room(scene: Scene, home: int) -> bool:
    """Whether nobody else waits for shared workers: then the share is no bound."""
    waiting: int = await scene.pool.fetchval(
        """SELECT count(*) FROM jobs j JOIN dispatches d ON d.id = j.dispatch_id
           WHERE d.task_queue = $1 AND j.run_id = ANY($2::uuid[]) AND j.run_id <> $3""",
        names.shared_scan_queue("probe"),
        scene.runs,
        scene.runs[home],
    )
    return waiting == 0
