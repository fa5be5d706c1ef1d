"""Records the history of every shape of a run that has none: `python -m tests.replay.record`.

Only histories that are not there yet are written: a stored history is never replaced, because workflows of
that age may still run somewhere. A shape that has changed gets another name in `shapes.py`; its earlier
history stays.
"""

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
from temporalio.client import Client

from runlane.db.migrate import seed_tools, upgrade
from runlane.db.pool import Pool, open_pool
from runlane.settings import Settings
from runlane.stack.supervisor import Stack
from runlane.storage import Storage, StorageConfig
from tests.integration.run_world import RunWorld
from tests.replay.shapes import SHAPES, Execution, Shape
from workflows.registration import WORKFLOWS

FOLDER: Final = Path(__file__).parent / "histories"
MANIFEST: Final = FOLDER / "MANIFEST"
"""Digest and name of each stored history. Lines are added; one that is there is never changed."""
IDENTITY: Final = "recorder"
"""Who started, polled and completed: neither the process nor the machine."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Servers that shapes are played on."""

    pool: Pool
    owner_url: str
    temporal: Client
    storage: Storage

    workflows: Sequence[type] = tuple(WORKFLOWS)

    async def record(self, shape: Shape) -> None:
        """Plays one shape and writes its histories."""
        for name, text in (await self.play(shape)).items():
            (FOLDER / f"{name}.json").write_text(text)
            with MANIFEST.open("a") as manifest:
                manifest.write(f"{digest_of(text)}  {name}.json\n")
            log.info("history_recorded", name=name, bytes=len(text))

    async def play(self, shape: Shape) -> dict[str, str]:
        """Plays one shape; answers its histories by their names.

        Raises:
            RuntimeError: it did not end as the shape says.
        """
        played = await shape.play(await self._world(shape.histories[0]))
        if played.status != shape.status:
            raise RuntimeError(f"{shape.histories[0]} closed as {played.status}, not as {shape.status}")
        return {name: await self._history(execution) for name, execution in played.executions.items()}

    async def _world(self, name: str) -> RunWorld:
        workspace_id = await self.pool.fetchval(
            "INSERT INTO workspaces (name, allowed_networks) VALUES ($1, '{127.0.0.0/8}') RETURNING id", name
        )
        world = RunWorld(self.pool, self.owner_url, self.temporal, self.storage, workspace_id)
        return replace(world, workflows=self.workflows)

    async def _history(self, execution: Execution) -> str:
        handle = self.temporal.get_workflow_handle(execution.workflow_id, run_id=execution.run_id)
        history = (await handle.fetch_history()).to_json_dict()
        events = [_without_traces(event) for event in history["events"]]
        lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
        return f'{{"events":[\n{lines}\n]}}\n'


def digest_of(text: str) -> str:
    """What the manifest has of a history."""
    return hashlib.sha256(text.encode()).hexdigest()


def _without_traces(value: object) -> object:
    """The same without stack traces: they name files of this machine, and no replay reads them."""
    if isinstance(value, dict):
        return {key: _without_traces(inner) for key, inner in value.items() if key != "stackTrace"}
    if isinstance(value, list):
        return [_without_traces(inner) for inner in value]
    return value


def shapes_to_record() -> list[Shape]:
    """Shapes that lack a stored history."""
    return [s for s in SHAPES if not all((FOLDER / f"{name}.json").exists() for name in s.histories)]


async def record(shapes: list[Shape]) -> None:
    """Starts a stack of its own and records the histories of these shapes."""
    # a developer's own servers are none to play on
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}
    with tempfile.TemporaryDirectory() as folder:
        async with Stack.open(Path(folder), environment, guarded=True) as stack:
            await upgrade(stack.urls.database_owner)
            values = {k.removeprefix("RUNLANE_").lower(): v for k, v in stack.environment().items()}
            settings = Settings.model_validate(values)
            pool = await open_pool(settings.database_system_url, size=8, name="recorder")
            await seed_tools(pool)
            client = await Client.connect(stack.urls.temporal_address, identity=IDENTITY)
            storage = Storage(StorageConfig(**settings.bucket))
            recorder = Recorder(pool, stack.urls.database_owner, client, storage)
            for shape in shapes:
                await recorder.record(shape)
            await pool.close()


if __name__ == "__main__":
    if found := shapes_to_record():
        asyncio.run(record(found))
    else:
        log.info("nothing_to_record", folder=FOLDER.name)
