"""Every shape of a run with no workflow kept in memory: each task replays its history.

A task of a shard may wait for its time limit (10 s) here: the SDK has one place for workflows that it does
not keep, and the parent was there first.
"""

from uuid import UUID

import pytest
from temporalio.client import Client

from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.conftest import Database
from tests.integration.run_world import RunWorld
from tests.replay.shapes import SHAPES, Shape

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.histories[0])
async def test_run_ends_the_same_when_every_task_replays(
    shape: Shape, stack: Stack, database: Database, settings: Settings, pool: Pool, workspace_id: UUID
) -> None:
    client = await Client.connect(stack.urls.temporal_address)
    storage = Storage(StorageConfig(**settings.bucket))
    world = RunWorld(pool, database.owner, client, storage, workspace_id, cached_workflows=0)

    played = await shape.play(world)

    assert played.status == shape.status
