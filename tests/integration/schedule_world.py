"""Schedules on real servers: a caller with a target, Temporal behind, and a worker that does fires."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from temporalio.client import Client, Schedule
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.fires import FireActivities
from lanes.commands import relay_once
from runlane import names
from runlane.db import fires
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.worker import RUNNER
from tests.integration.api_world import ApiWorld, Caller, open_api
from workflows.dispatching import Limits
from workflows.fire import ScheduleFire

YEARLY = {"cron": "0 0 1 1 *", "jitter_s": 0}
"""Fires by hand only, as far as a test is concerned."""


@dataclass(frozen=True, slots=True)
class ScheduleWorld:
    """A caller with a target, and Temporal behind."""

    api: ApiWorld
    caller: Caller
    client: Client
    target: str

    async def create(self, name: str = "nightly", **changes: object) -> str:
        """Makes a schedule; returns its id."""
        body = {"name": name, "definition": "domain_discovery", "targets": [self.target]} | YEARLY | changes
        answer = await self.caller.http.post("/v1/schedules", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def act(self, schedule: str, action: str) -> dict[str, object]:
        """Pauses, resumes or deletes."""
        answer = await self.caller.http.post(f"/v1/schedules/{schedule}/{action}", json={"reason": "test"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def relay(self) -> None:
        """Tells Temporal all commands that are due."""
        while (await relay_once(self.api.pool, self.client, Limits())).done:
            pass

    async def told(self, schedule: str) -> Schedule:
        """A schedule as Temporal has it."""
        handle = self.client.get_schedule_handle(names.schedule_id(UUID(schedule)))
        return (await handle.describe()).schedule

    async def ledger(self, schedule: str) -> list[dict[str, object]]:
        """Fires, the oldest first."""
        answer = await self.caller.http.get(f"/v1/schedules/{schedule}/fires", params={"sort": "due_at"})
        return list(answer.json()["items"])

    async def fire(self, schedule: str, hours: int = 0) -> fires.Fired:
        """Decides the fire of an hour, as its workflow would ask."""
        due_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
        async with self.api.pool.acquire() as conn, conn.transaction():
            asked = fires.Fire(UUID(schedule), due_at, f"{names.fire_workflow_id(UUID(schedule))}-{hours}")
            return await fires.fire(conn, asked)

    async def events(self, like: str) -> list[str]:
        """Types of events, in order."""
        rows = await self.api.pool.fetch("SELECT type FROM outbox WHERE type LIKE $1 ORDER BY id", like)
        return [row["type"] for row in rows]


@asynccontextmanager
async def schedule_world(settings: Settings, pool: Pool) -> AsyncIterator[ScheduleWorld]:
    """The API without Temporal, and Temporal; schedules are deleted there afterwards."""
    client = await Client.connect(settings.temporal_address)
    away = settings.model_copy(update={"temporal_address": "127.0.0.1:1"})
    async with open_api(away, pool) as api, api.caller("ours") as caller:
        yield ScheduleWorld(api, caller, client, await api.add_target(caller))
    for row in await pool.fetch("SELECT id FROM schedules"):
        try:
            await client.get_schedule_handle(names.schedule_id(row["id"])).delete()
        except RPCError:
            continue


@asynccontextmanager
async def served(world: ScheduleWorld) -> AsyncIterator[None]:
    """A worker that does fires."""
    worker = Worker(
        world.client,
        task_queue=names.CORE_QUEUE,
        workflows=[ScheduleFire],
        activities=[FireActivities(world.api.pool).decide_fire],
        workflow_runner=RUNNER,
    )
    async with worker:
        yield


async def is_found(read: Callable[[], Awaitable[Iterable[object]]], expected: Iterable[object]) -> bool:
    """Whether a reading finds this, in any order."""
    return sorted(map(str, await read())) == sorted(map(str, expected))
