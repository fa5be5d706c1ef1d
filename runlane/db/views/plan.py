"""A dry run: what a request would start, on which task queues, and who serves them.

The run is really written, its steps are opened and jobs admitted, by the very functions that do it in
earnest; then all is rolled back. So a plan is refused for the same reasons, and leaves out what a run would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane.db import admit
from runlane.db.pool import Connection, Record
from runlane.db.routes import PLACE, Routes
from runlane.db.run_requests import RunRequest, start_of
from runlane.db.starting import start_run
from runlane.jobs import JobStatus
from runlane.waiting import no_worker, tool_off

MAX_ADMITTED: Final = 5_000
"""Jobs of a step that are counted; of a step with more it is said that there are more."""

MAX_CHUNKS: Final = 10
"""Chunks of a step that are looked at: the first ones of a large selection only make assets."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """Jobs of a step that go to the same queue."""

    task_queue: str
    network: str | None
    """Internal network of the targets; None: none."""
    jobs: int
    slots: int
    """Of live workers that serve the queue."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step would do, as far as that is known before the steps that it needs have run."""

    step_id: str
    name: str
    tool_id: str
    toolset: str
    needs: Sequence[str]
    config: Mapping[str, object]
    """Options that it would have, those of its profile included."""
    jobs: int
    is_exact: bool
    """False if more may be found by the steps before it, or there are more than are counted."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Jobs that would be skipped at once, by reason."""
    routes: Sequence[RoutePlan] = ()
    missing: Sequence[str] = ()
    """What nobody serves, in words."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a request would start."""

    name: str
    jobs: int
    steps: Sequence[StepPlan]
    missing: Sequence[str]


_STEPS: Final = """
SELECT s.step_id, s.name, s.tool_id, s.config, t.toolset, t.enabled, s.admitted_at IS NOT NULL AS is_admitted,
       w.allow_shared,
       ARRAY(SELECT n.needs FROM run_needs n WHERE n.run_id = s.run_id AND n.step_id = s.step_id
             ORDER BY n.needs) AS needs
FROM run_steps s
JOIN tools t ON t.id = s.tool_id
JOIN workspaces w ON w.id = s.workspace_id
WHERE s.workspace_id = $1 AND s.run_id = $2
ORDER BY s.position
"""

_JOBS: Final = f"""
SELECT j.step_id, j.place, n.name AS network, j.status, j.reason, count(*) AS jobs
FROM (SELECT step_id, {PLACE} AS place, status, reason FROM jobs
      WHERE workspace_id = $1 AND run_id = $2) AS j
LEFT JOIN internal_networks n ON n.id = j.place
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 3
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was written and rolled back: steps, and jobs by step, place and status."""

    name: str
    allow_shared: bool
    steps: Sequence[Record]
    jobs: Sequence[Record]

    @property
    def toolsets(self) -> list[str]:
        """Tool sets that it needs."""
        return sorted({step["toolset"] for step in self.steps})


async def draft_run(conn: Connection, request: RunRequest) -> Draft:
    """Writes the run inside the caller's transaction, reads what came of it, and takes it all back.

    Raises:
        Refused: for the same reasons as a start.
    """
    start = await start_of(conn, request)
    written = conn.transaction()
    await written.start()
    try:
        run_id = (await start_run(conn, start)).run_id
        for step in start.definition.steps:
            await _admit(conn, run_id, step.step_id)
        steps = await conn.fetch(_STEPS, request.workspace_id, run_id)
        jobs = await conn.fetch(_JOBS, request.workspace_id, run_id)
    finally:
        await written.rollback()
    return Draft(start.name, steps[0]["allow_shared"], steps, jobs)


async def _admit(conn: Connection, run_id: UUID, step_id: str) -> None:
    await admit.open_step(conn, run_id, step_id)
    admitted = 0
    for _ in range(MAX_CHUNKS):
        chunk = await admit.admit_chunk(conn, run_id, step_id)
        admitted += chunk.jobs
        if chunk.is_done or admitted >= MAX_ADMITTED:
            return


def plan_of(draft: Draft, routes: Sequence[Routes]) -> RunPlan:
    """Says where the jobs of a draft would go; `routes` has one for each of its tool sets."""
    by_toolset = {each.toolset: each for each in routes}
    steps = [_step_plan(step, draft.jobs, by_toolset[step["toolset"]]) for step in draft.steps]
    missing = sorted({text for step in steps for text in step.missing})
    return RunPlan(draft.name, sum(step.jobs for step in steps), steps, missing)


def _step_plan(step: Record, jobs: Sequence[Record], routes: Routes) -> StepPlan:
    own = [row for row in jobs if row["step_id"] == step["step_id"]]
    live = [row for row in own if row["status"] == JobStatus.PENDING]
    planned = _route_plans(live, routes)
    missing = [
        routes.nobody(row["place"], row["network"]) for row in live if not routes.route_of(row["place"])[1]
    ]
    if not planned and not routes.is_served:
        missing = [no_worker(routes.toolset)]
    if not step["enabled"]:
        missing = [tool_off(step["tool_id"]), *missing]
    skipped = {
        row["reason"] or row["status"]: row["jobs"] for row in own if row["status"] != JobStatus.PENDING
    }
    return StepPlan(
        step_id=step["step_id"],
        name=step["name"],
        tool_id=step["tool_id"],
        toolset=step["toolset"],
        needs=step["needs"],
        config=step["config"],
        jobs=sum(route.jobs for route in planned),
        is_exact=step["is_admitted"] and not step["needs"],
        skipped=skipped,
        routes=planned,
        missing=missing,
    )


def _route_plans(rows: Sequence[Record], routes: Routes) -> list[RoutePlan]:
    """One for each queue: jobs of two places may go to the same."""
    plans: dict[str, RoutePlan] = {}
    for row in rows:
        queue, slots = routes.route_of(row["place"])
        jobs = row["jobs"] + (plans[queue].jobs if queue in plans else 0)
        plans[queue] = RoutePlan(queue, row["network"], jobs, slots)
    return list(plans.values())
