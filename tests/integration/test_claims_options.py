"""What a claim hands out as the options of its jobs: the definition's, and above them the platform's."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from runlane import names
from runlane.db.claims import ClaimAnswer
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.pool import Pool
from runlane.db.runs import Owner, load
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.tools import TOOLS
from tests.integration.scan_host import ScanHost, enrol

pytestmark = pytest.mark.integration

OWNER = Owner("workflow", datetime(2026, 12, 1, 10, 0, tzinfo=UTC))
CONFIG = {"allow": ["0.0.0.0/0"], "timeout_s": 1e9, "ports": "1-10"}
SHARE = "UPDATE workers SET scope = 'shared', workspace_id = NULL WHERE id = $1"


async def claimed(host: ScanHost) -> ClaimAnswer:
    """Starts a run of one job whose definition asks for more than it may have; the host claims it."""
    definition = parse_definition({"name": "test", "jobs": {"only": {"run": "noop", "config": CONFIG}}})
    async with host.pool.acquire() as conn, conn.transaction():
        target_id: UUID = await conn.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test') RETURNING id",
            host.workspace_id,
        )
        started = await start_run(conn, StartRun(host.workspace_id, definition, [target_id], "test"))
        await load(conn, started.run_id, OWNER)
        call = NextBatches(
            run_id=started.run_id,
            workspace_id=host.workspace_id,
            workflow_id=names.run_workflow_id(started.run_id),
            workflow_run_id=OWNER.workflow_run_id,
            owner=OWNER.workflow_run_id,
            call_number=1,
            rooms={"only": 1},
        )
        (dispatch,) = (await next_batches(conn, call)).dispatches
    return await host.claim(dispatch.dispatch_id, "key", 1)


async def test_a_definition_widens_neither_egress_nor_time(pool: Pool, workspace_id: UUID) -> None:
    answer = await claimed(await enrol(pool, workspace_id))

    assert answer.jobs
    assert dict(answer.options) == {
        "allow": ["127.0.0.0/8"],
        "timeout_s": TOOLS["noop"].wall_s,
        "ports": "1-10",
    }


async def test_shared_worker_reaches_no_network_that_a_workspace_allows_itself(
    pool: Pool, workspace_id: UUID
) -> None:
    host = await enrol(pool, workspace_id)
    await pool.execute(SHARE, host.worker_id)
    await pool.execute("UPDATE workspaces SET allow_shared = true")

    answer = await claimed(host)

    assert answer.jobs
    assert answer.options["allow"] == []
