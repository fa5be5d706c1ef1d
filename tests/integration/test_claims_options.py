"""What a claim hands out as the options of its jobs: the definition's, and above them the platform's."""

from uuid import UUID

import pytest

from runlane.db.claims import ClaimAnswer
from runlane.db.pool import Pool
from runlane.tools import TOOLS
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.scan_host import ScanHost, enrol

pytestmark = pytest.mark.integration

CONFIG = {"allow": ["0.0.0.0/0"], "timeout_s": 1e9, "ports": "1-10"}
SHARE = "UPDATE workers SET scope = 'shared', workspace_id = NULL WHERE id = $1"


async def claimed(host: ScanHost) -> ClaimAnswer:
    """Starts a run of one job whose definition asks for more than it may have; the host claims it."""
    shape = Shape(config=CONFIG)
    (dispatch_id,) = (await dispatched_run(host.pool, host.workspace_id, shape)).dispatches
    return await host.claim(dispatch_id, "key", 1)


async def test_a_definition_widens_neither_egress_nor_time(pool: Pool, workspace_id: UUID) -> None:
    answer = await claimed(await enrol(pool, workspace_id))

    assert answer.jobs
    assert dict(answer.options) == {
        "allow": ["127.0.0.0/8"],
        "bound": False,
        "deny": [],
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
