"""Beside a transaction that stays open and keeps every dead row: what it costs, how it is found and ended."""

from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy import text

from activities.verdicts import events_of
from benchmarks import growth
from benchmarks.growth import Scene
from runlane.db import outbox, settle, staging
from runlane.db.claims import ClaimRequest, claim
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.engine import open_engine
from runlane.db.horizon import OpenTransaction, oldest_transaction, sees_all
from runlane.db.pool import IDLE_IN_TRANSACTION_S, Connection, Pool
from runlane.jobs import Outcome
from runlane.stack.doctor_transactions import LONG_S, judge
from runlane.stack.findings import Level
from runlane.stack.supervisor import Stack
from tests.conftest import Database

pytestmark = pytest.mark.integration

JOBS = 4_000
BATCHES = 16
BATCH = 25
RELAYED = 2_000
"""Events of one turn of the relay: all that a turn of the jobs makes."""

ARGV = ["/usr/bin/python3", "-m", "runlane.probes", "noop"]

A_DEAD_ROW = 0.5
"""Buffers that each job that was dispatched while the transaction is open may cost a later dispatch: its row
is passed in the index. Nothing else may grow."""

AnswerT = TypeVar("AnswerT")


@dataclass
class Turns:
    """Jobs on their whole way, a few hundred at a time, and the buffers that each stage of it touches."""

    conn: Connection
    scene: Scene
    run_id: UUID
    bound: outbox.Bound = field(default_factory=outbox.Bound)
    touched: list[Counter[str]] = field(default_factory=list)

    async def turn(self) -> None:
        self.touched.append(Counter())
        conn, number = self.conn, len(self.touched)
        call = NextBatches(
            self.run_id, self.scene.workspace_id, "run", "run", "me", number, {"a": BATCHES}, BATCH
        )
        found = (await self._count("dispatch", next_batches(conn, call))).dispatches
        assert len(found) == BATCHES
        for dispatch_id in [each.dispatch_id for each in found]:
            asked = ClaimRequest(
                dispatch_id, str(uuid4()), self.scene.worker_id, self.scene.incarnation, BATCH
            )
            answer = await self._count("claim", claim(conn, asked))
            members = [
                staging.StagedMember(
                    job.job_id, job.attempt, Outcome.COMPLETED, None, True, True, {}, ARGV, "1"
                )
                for job in answer.jobs
            ]
            delivery = staging.Delivery(asked.worker_id, asked.incarnation, dispatch_id, members)
            await self._count("stage", staging.stage(conn, delivery))
        await self._count("settle", self._settle([each.dispatch_id for each in found]))
        bus = await self._count("look of the relay", outbox.bus(conn, self.bound.last_id))
        self.bound.note_look(bus)
        given = await self._count("relay", outbox.sequence(conn, RELAYED, self.bound.last_id))
        assert given is not None
        self.bound.note_numbers(given, RELAYED)

    async def _settle(self, dispatch_ids: Sequence[UUID]) -> None:
        attempts = await settle.lock(self.conn, await settle.attempts_of(self.conn, dispatch_ids))
        decisions = [settle.decide(attempt, Outcome.COMPLETED) for attempt in attempts]
        await settle.write(self.conn, decisions)
        await outbox.insert(self.conn, events_of(decisions, datetime.now(UTC)))
        await settle.close(self.conn, dispatch_ids, is_lost=False)

    async def _count(self, name: str, call: Awaitable[AnswerT]) -> AnswerT:
        before = await growth._touched(self.conn)
        async with self.conn.transaction():
            answer = await call
        self.touched[-1][name] += await growth._touched(self.conn) - before
        return answer


@pytest.mark.breaks_invariants  # the live rows are written without their events
async def test_claims_settles_and_the_relay_cost_no_more_beside_an_open_snapshot(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    scene = await growth.make_scene(pool, database.owner, workspace_id, live=3 * JOBS)
    run_id = await pool.fetchval("UPDATE job_histories SET owner = 'me' RETURNING id")
    async with pool.acquire() as reader, pool.acquire() as conn:
        turns = Turns(conn, scene, run_id)
        async with reader.transaction(isolation="repeatable_read", readonly=True):
            await reader.fetch("SELECT id FROM jobs LIMIT 1")
            for _ in range(JOBS // (BATCHES * BATCH) - 1):
                await turns.turn()

    early, late = turns.touched[2], turns.touched[-1]
    dead = BATCHES * BATCH * (len(turns.touched) - 3)
    assert late["dispatch"] - early["dispatch"] <= A_DEAD_ROW * dead, turns.touched
    for name in ("claim", "stage", "settle", "relay", "look of the relay"):
        assert late[name] <= growth.MOST * early[name], (name, turns.touched)


@pytest.mark.breaks_invariants  # as above
async def test_stage_and_settle_rewrite_an_attempt_in_its_own_page_and_touch_no_index(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    scene = await growth.make_scene(pool, database.owner, workspace_id, live=3 * BATCHES * BATCH)
    run_id = await pool.fetchval("UPDATE job_histories SET owner = 'me' RETURNING id")
    async with pool.acquire() as conn:
        await Turns(conn, scene, run_id).turn()

        (row,) = await conn.fetch(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job_attempts'"
        )

    assert row["n_tup_hot_upd"] == row["n_tup_upd"] == 2 * BATCHES * BATCH


async def test_doctor_names_whoever_keeps_a_transaction_open(stack: Stack, database: Database) -> None:
    superuser = stack.database_admin
    assert superuser is not None
    url = f"{superuser.rpartition('/')[0]}/{database.system.rpartition('/')[2]}"
    backup = await asyncpg.connect(url, server_settings={"application_name": "backup"})
    doctor = await asyncpg.connect(database.system)
    try:
        async with backup.transaction(isolation="repeatable_read", readonly=True):
            await backup.fetch("SELECT id FROM jobs LIMIT 1")
            oldest = await oldest_transaction(doctor)
            assert await sees_all(doctor)
    finally:
        await backup.close()
        await doctor.close()

    assert oldest is not None
    assert oldest.who.startswith("backup as postgres, pid ")
    assert judge(oldest, is_blind=False).level is Level.OK
    long = judge(OpenTransaction(oldest.who, LONG_S), is_blind=False)
    assert long.level is Level.WARN
    assert "backup as postgres" in long.detail
    assert judge(None, is_blind=True).level is Level.WARN


async def test_server_ends_a_transaction_of_ours_that_nobody_continues(
    database: Database, pool: Pool
) -> None:
    setting = "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    engine = open_engine(database.api, size=1)
    try:
        async with engine.connect() as conn:
            of_engine = (await conn.execute(text(setting))).scalar_one()
    finally:
        await engine.dispose()

    assert [await pool.fetchval(setting), of_engine] == [f"{1_000 * IDLE_IN_TRANSACTION_S}"] * 2
