"""A run of one step that was begun and dispatched by the statements alone, without a workflow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from string import ascii_lowercase
from uuid import UUID

from runlane import names
from runlane.db.definitions import read_definition
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.runs import Owner, load
from runlane.db.starting import StartRun, start_run

_CALLS = count(1)
"""Every run has the same owner here, and no two of its calls the same number."""

OWNER = Owner("workflow", datetime(2026, 12, 1, 10, 0, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the run does, and how its jobs are cut into batches."""

    tool: str = "noop"
    config: Mapping[str, object] = field(default_factory=dict)
    batches: int = 1
    jobs_each: int = 1


@dataclass(frozen=True, slots=True)
class DispatchedRun:
    """The run and its batches, which nobody has claimed yet."""

    run_id: UUID
    dispatches: list[UUID]


async def dispatched_run(pool: Pool, workspace_id: UUID, shape: Shape | None = None) -> DispatchedRun:
    """Writes a run over the targets `a.test`, `b.test`, … and dispatches all its jobs."""
    shape = shape or Shape()
    step = {"run": shape.tool, "config": dict(shape.config)}
    hosts = [f"{letter}.test" for letter in ascii_lowercase[: shape.batches * shape.jobs_each]]
    async with pool.acquire() as conn, conn.transaction():
        rows = await conn.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               SELECT $1, 'domain', unnest($2::text[]) RETURNING id""",
            workspace_id,
            hosts,
        )
        targets = [row["id"] for row in rows]
        definition = await read_definition(conn, workspace_id, {"name": "test", "jobs": {"only": step}})
        started = await start_run(conn, StartRun(workspace_id, definition, targets, "test"))
        await load(conn, started.run_id, OWNER)
        call = NextBatches(
            run_id=started.run_id,
            workspace_id=workspace_id,
            workflow_id=names.run_workflow_id(started.run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=next(_CALLS),
            rooms={"only": shape.batches},
            least_batch=shape.jobs_each,
        )
        found = await next_batches(conn, call)
    return DispatchedRun(started.run_id, [each.dispatch_id for each in found.dispatches])
