"""Scan workers that beat and take no work: told to renew their polls, lost if that does not help."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db import polls
from runlane.db.polls import Polled
from runlane.db.pool import Pool
from runlane.db.sweeps import missing_polls
from runlane.db.views.why import why_run
from runlane.gateway import noting
from runlane.scan import polling
from runlane.scan.worker import run_scan_worker
from runlane.settings import Settings
from runlane.sweeps import Part, Report
from tests.integration.dispatched_run import Shape, dispatched_run
from tests.integration.gateway_host import RawHost, raw_host
from tests.integration.sweep_world import SweepWorld, sweep_world
from tests.integration.worker_host import (
    NOTHING,
    Host,
    claimed_host,
    dispatch,
    joined_host,
    next_of,
    open_stream,
)
from tests.integration.worker_world import World, core_of, free_port, gateway_on, world_of
from tests.waiting import until

pytestmark = pytest.mark.integration

LONG = timedelta(minutes=2)
LOOK_S = 0.5
"""What counts as long in tests where processes run."""


@pytest_asyncio.fixture
async def world(
    settings: Settings, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(noting, "NOTE_S", 0.1)
    monkeypatch.setattr(polling, "_ABANDON_S", 1.0)
    async with world_of(settings, pool, tmp_path) as world:
        yield world


@pytest_asyncio.fixture
async def sweeps(settings: Settings, pool: Pool) -> AsyncIterator[SweepWorld]:
    async with sweep_world(settings.model_copy(update={"worker_poll_s": LOOK_S}), pool) as sweeps:
        yield sweeps


class TestWhoIsTold:
    @pytest_asyncio.fixture
    async def patient(self, settings: Settings, pool: Pool) -> AsyncIterator[SweepWorld]:
        async with sweep_world(settings, pool) as sweeps:
            yield sweeps

    async def test_worker_that_lets_work_wait_is_told_once_and_then_lost(
        self, world: World, patient: SweepWorld
    ) -> None:
        async with joined_host(world) as host:
            await waiting_batch(world)
            await came_long_ago(world, host)

            told = await patient.sweep(Part.MISSING_POLLS)
            again = await patient.sweep(Part.MISSING_POLLS)
            is_told = await row_of(world, host, "status", "not_polling")
            await world.pool.execute("UPDATE workers SET not_polling_since = now() - $1::interval", LONG)
            lost = await patient.sweep(Part.MISSING_POLLS)

        assert (told, again, lost) == (Report(1, 1), Report(1, 0), Report(1, 1))
        assert is_told == ("online", ["probe"])
        assert await row_of(world, host, "status", "not_polling") == ("offline", ["probe"])
        assert await world.pool.fetchval("SELECT count(*) FROM worker_losses") == 1
        assert await loss_reasons(world) == ["not_polling"]

    async def test_worker_that_polls_is_left_alone_whoever_noted_it(
        self, world: World, patient: SweepWorld
    ) -> None:
        async with joined_host(world) as host:
            await waiting_batch(world)
            await came_long_ago(world, host)
            await note(world, host)

            assert await patient.sweep(Part.MISSING_POLLS) == Report()

    async def test_worker_that_is_full_or_has_nothing_to_take_is_left_alone(
        self, world: World, patient: SweepWorld
    ) -> None:
        async with claimed_host(world, 1) as (host, _, _):
            await came_long_ago(world, host)
            nothing_waits = await patient.sweep(Part.MISSING_POLLS)
            await waiting_batch(world)
            await world.pool.execute("UPDATE workers SET slots = '{\"probe\": 1}'")
            is_full = await patient.sweep(Part.MISSING_POLLS)
            await world.pool.execute("UPDATE workers SET slots = '{\"probe\": 2}'")
            has_room = await patient.sweep(Part.MISSING_POLLS)

        assert (nothing_waits, is_full, has_room) == (Report(), Report(), Report(1, 1))

    @pytest.mark.parametrize(
        ("seen", "steady"), [(LONG, LONG), (timedelta(0), LONG / 4)], ids=["gone", "just back"]
    )
    async def test_missing_polls_say_nothing_while_no_gateway_noted_any(
        self, world: World, patient: SweepWorld, seen: timedelta, steady: timedelta
    ) -> None:
        await world.stop_gateway()
        async with joined_host(world) as host:
            await waiting_batch(world)
            await came_long_ago(world, host)
            await world.pool.execute(
                """UPDATE gateway_replicas
                   SET seen_at = now() - $1::interval, steady_since = now() - $2::interval""",
                seen,
                steady,
            )

            assert await patient.sweep(Part.MISSING_POLLS) == Report()

    async def test_new_life_of_a_worker_is_given_time(self, world: World, patient: SweepWorld) -> None:
        async with joined_host(world) as host:
            await waiting_batch(world)
            await came_long_ago(world, host)
            await note(world, host)
            await patient.sweep(Part.MISSING_POLLS)
            await host.api.leave()
            async with joined_host(world, host.joined.token) as next_life:
                await world.pool.execute("UPDATE workers SET stream_seen_at = clock_timestamp()")

                assert await patient.sweep(Part.MISSING_POLLS) == Report()
                assert await row_of(world, next_life, "status", "not_polling") == ("online", [])
        assert await world.pool.fetchval("SELECT count(*) FROM worker_polls") == 0


async def test_look_for_missing_polls_reads_open_batches_and_their_live_jobs_only(
    pool: Pool, workspace_id: UUID
) -> None:
    await dispatched_run(pool, workspace_id, Shape(batches=3))
    await pool.execute(
        """INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number,
                                   task_queue, priority, size, closed_at)
           SELECT workspace_id, run_id, step_id, workflow_id, 'x', n, task_queue, priority, size, now()
           FROM (SELECT * FROM dispatches LIMIT 1) d, generate_series(1, 20000) n"""
    )
    await pool.execute("VACUUM ANALYZE dispatches")
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await conn.execute("SET LOCAL enable_seqscan = off")  # the few rows of the other tables
        rows = await conn.fetch(f"EXPLAIN (COSTS OFF) {missing_polls._FIND}", UUID(int=0), 1_000, 60.0)
    found = "\n".join(row[0] for row in rows)

    assert "dispatches_queued" in found
    assert "jobs_dispatched" in found
    assert not re.search("Seq Scan on (dispatches|jobs|workers|worker_polls)", found)


async def test_worker_whose_line_for_work_is_dead_renews_it_and_does_the_work(
    world: World, sweeps: SweepWorld
) -> None:
    async def is_told() -> bool:
        return (await sweeps.sweep(Part.MISSING_POLLS)).changed > 0

    async with core_of(world.settings), line_to(world.settings.gateway_port) as line, worker_on(world, line):
        await until(lambda: world.pool.fetchval("SELECT count(*) FROM worker_polls"))
        line.die()
        run_id = await world.start_run(1)
        await until(is_told)
        assert await world.closed(run_id) == "completed"
        await until(lambda: world.pool.fetchval("SELECT not_polling = '{}' FROM workers"))
    assert await world.attempts(run_id) == {"completed": 1}
    assert await loss_reasons(world) == []


async def test_worker_that_does_not_poll_is_told_then_lost_and_is_back_when_it_polls(
    world: World, sweeps: SweepWorld
) -> None:
    async def sweep_finds(status: str) -> bool:
        await sweeps.sweep(Part.MISSING_POLLS)
        return bool(
            await world.pool.fetchval("SELECT status = $1 AND not_polling <> '{}' FROM workers", status)
        )

    async def is_seen_again() -> bool:
        return bool(await world.pool.fetchval("SELECT stream_seen_at > $1 FROM workers", seen))

    other = world.settings.model_copy(update={"gateway_port": free_port()})
    async with (
        core_of(world.settings),
        gateway_on(other),
        raw_host(world) as host,
        open_stream(world, host.host) as messages,
        beating(host),
    ):
        run_id = await world.start_run(1)
        await until(lambda: sweep_finds("online"))
        assert await next_of(messages, "renew_polls") == ["probe"]

        await until(lambda: sweep_finds("offline"))
        async with world.pool.acquire() as conn:
            why = await why_run(conn, world.workspace_id, run_id)
        seen = await world.pool.fetchval("SELECT stream_seen_at FROM workers")
        await until(is_seen_again)
        is_back_too_soon = await world.is_online("host")

        poll = asyncio.create_task(host.poll())
        await until(lambda: world.is_online("host"))
        poll.cancel()
        await asyncio.wait([poll])

    assert not is_back_too_soon
    assert [group.explanation.text for step in why.steps for group in step.groups] == [
        "no live worker for the tool set probe (1 not polling)"
    ]
    assert await loss_reasons(world) == ["not_polling"]
    assert await row_of(world, host.host, "not_polling") == ([],)


async def waiting_batch(world: World) -> None:
    """A batch that has waited for long on the queue of the workspace's workers."""
    await dispatch(world, await world.start_run(2))
    await world.pool.execute("UPDATE dispatches SET created_at = now() - $1::interval", LONG)


async def came_long_ago(world: World, host: Host) -> None:
    """A host that is there since long, as is a gateway."""
    await world.pool.execute(
        "UPDATE workers SET joined_at = now() - $2::interval, stream_seen_at = now() WHERE id = $1",
        UUID(host.joined.worker_id),
        LONG,
    )
    async with world.pool.acquire() as conn:
        await polls.note_gateway(conn, "gateway", 120)


async def note(world: World, host: Host) -> None:
    async with world.pool.acquire() as conn:
        await polls.note(conn, [Polled(UUID(host.joined.worker_id), UUID(host.incarnation), "probe")])


async def row_of(world: World, host: Host, *columns: str) -> tuple[object, ...]:
    row = await world.pool.fetchrow("SELECT * FROM workers WHERE id = $1", UUID(host.joined.worker_id))
    assert row is not None
    return tuple(row[column] for column in columns)


async def loss_reasons(world: World) -> list[str]:
    rows = await world.pool.fetch("SELECT data FROM outbox WHERE type = 'worker.timed_out'")
    return [row["data"]["reason"] for row in rows]


@asynccontextmanager
async def beating(host: RawHost) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            await host.host.api.heartbeat(NOTHING)
            await asyncio.sleep(1)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass(slots=True)
class Line:
    """A line to a server that can die: who is on it then hears nothing any more; others are served."""

    address: str = ""
    pipes: set[asyncio.Task[None]] = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    inner: list[asyncio.StreamWriter] = field(default_factory=list)

    def die(self) -> None:
        """Ends every connection on the server's side, and tells the client nothing."""
        for pipe in self.pipes:
            pipe.cancel()
        for writer in self.inner:
            writer.close()

    async def pass_on(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection."""
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        self.writers.append(writer)
        self.inner.append(inner_writer)
        for ends in ((reader, inner_writer), (inner_reader, writer)):
            self.pipes.add(asyncio.create_task(_pipe(*ends)))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    line = Line()
    server = await asyncio.start_server(partial(line.pass_on, port), "127.0.0.1", 0)
    line.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield line
        line.die()
        for writer in [*line.writers, *line.inner]:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def worker_on(world: World, line: Line) -> AsyncIterator[None]:
    """A scan worker that reaches the gateway over a line."""
    stop = asyncio.Event()
    settings = replace(world.scan_settings(), temporal_address=line.address)
    worker = asyncio.create_task(run_scan_worker(settings, stop))
    try:
        await until(lambda: world.is_online("one"))
        yield
    finally:
        stop.set()
        await worker
