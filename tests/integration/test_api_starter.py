"""The immediate start of a run's workflow: with Temporal there, it waits for no relay."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.client import Client

from runlane import names
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, open_api
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings, pool) as opened:
        yield opened


async def _started(pool: Pool) -> None:
    """Waits until no command to start a run is open."""

    async def is_told() -> bool:
        return not await pool.fetchval("SELECT count(*) FROM commands WHERE done_at IS NULL")

    await until(is_told)


async def test_accepted_run_has_its_workflow_and_a_done_command(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    run_id = await world.start_run(caller, await world.add_target(caller))

    await _started(pool)
    client = await Client.connect(settings.temporal_address)
    handle = client.get_workflow_handle(f"run/{run_id}")
    try:
        description = await handle.describe()
        attributes = description.search_attributes
        assert attributes[names.SA_WORKSPACE] == [str(caller.workspace_id)]
        assert attributes[names.SA_RUN_STATUS] == ["accepted"]
        assert description.task_queue == names.CORE_QUEUE
    finally:
        await handle.terminate("end of the test: no worker of another test shall find it")


async def test_repeated_request_starts_nothing_anew(
    world: ApiWorld, caller: Caller, pool: Pool, settings: Settings
) -> None:
    target = await world.add_target(caller)
    body = {"definition": "domain_discovery", "targets": [target]}
    headers = {"Idempotency-Key": "once"}

    answers = [await caller.http.post("/v1/runs", json=body, headers=headers) for _ in range(2)]

    assert answers[0].json() == answers[1].json()
    await _started(pool)
    client = await Client.connect(settings.temporal_address)
    handle = client.get_workflow_handle(f"run/{answers[0].json()['run_id']}")
    await handle.terminate("end of the test")
    assert await pool.fetchval("SELECT count(*) FROM commands") == 1
