"""Runs of jobs that end only when they are cancelled: something to be in the middle of."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from runlane.db.cancel import cancel_run
from runlane.db.starting import StartRun, start_run
from runlane.db.workspaces import allow_networks
from runlane.definitions import parse_definition
from runlane.jobs import JobStatus
from tests.e2e.installation import Installation, until

NETWORK: Final = "127.250.0.0/24"
ADDRESSES: Final = tuple(f"127.250.0.{number}" for number in range(1, 17))
"""Nothing listens there. One job for each."""

BEGIN_LIMIT_S: Final = 90.0

_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "noop": {"sleep_ms": 86_400_000},
    "nmap": {"ports": "80"},
    "naabu": {"ports": "80"},
}
"""By tool. The programs of the last two are those of `tests.chaos.programs`."""


async def make_targets(installation: Installation) -> list[UUID]:
    """The targets of all endless runs of an installation."""
    workspace_id = installation.platform.workspace_id
    async with installation.pool.acquire() as conn, conn.transaction():
        await allow_networks(conn, workspace_id, (NETWORK,))
        rows = await conn.fetch(
            """INSERT INTO targets (workspace_id, kind, value)
               SELECT $1, 'ip', unnest($2::text[]) RETURNING id""",
            workspace_id,
            list(ADDRESSES),
        )
    return [row["id"] for row in rows]


@asynccontextmanager
async def endless_run(installation: Installation, tool: str, targets: list[UUID]) -> AsyncIterator[UUID]:
    """A run whose jobs are all in progress; it is cancelled at the end of the block."""
    workspace_id = installation.platform.workspace_id
    definition = parse_definition(
        {"name": "endless", "jobs": {"only": {"run": tool, "config": dict(_OPTIONS[tool])}}}
    )
    async with installation.pool.acquire() as conn, conn.transaction():
        run_id = (await start_run(conn, StartRun(workspace_id, definition, targets, "endless"))).run_id

    async def is_in_progress() -> bool:
        return await installation.jobs(run_id) == {JobStatus.IN_PROGRESS: len(targets)}

    try:
        await until(is_in_progress, BEGIN_LIMIT_S)
        yield run_id
    finally:
        async with installation.pool.acquire() as conn, conn.transaction():
            await cancel_run(conn, workspace_id, run_id)
