"""Events that mirror a request, and the two postures of publishing, with a database that refuses them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest

from api.deps import Access
from api.emitting import Mirror, emits
from api.routes.groups import router
from api.schemas import Answer
from runlane import names
from runlane.db.pool import Pool
from runlane.db.publish_counts import COUNTS, MAX_NAMES, OTHERS, PublishCounts
from runlane.db.publish_figures import publish_figures
from runlane.db.publishing import publish_quietly
from runlane.db.runs import Owner, load
from runlane.errors import Defect
from runlane.events import Envelope, envelope
from runlane.events.catalog import EVENT_CATALOG
from runlane.events.payloads import WorkerRejected
from runlane.exposition import render
from tests.conftest import Database
from tests.integration.api_world import ApiWorld, Caller

pytestmark = pytest.mark.integration


@asynccontextmanager
async def refusing(database: Database, role: str) -> AsyncIterator[None]:
    """A database that takes no event of a role."""
    owner = await asyncpg.connect(database.owner)
    await owner.execute(f"REVOKE INSERT ON outbox FROM {role}")
    yield
    await owner.execute(f"GRANT INSERT ON outbox TO {role}")
    await owner.close()


def rejected(workspace_id: UUID) -> Envelope:
    payload = WorkerRejected(worker_id=uuid4(), reason="another life is alive")
    leaf = EVENT_CATALOG.worker.rejected
    return envelope(leaf, payload, workspace_id=workspace_id, subject=f"worker/{payload.worker_id}")


async def test_an_event_mirrors_the_request_and_its_answer(caller: Caller, pool: Pool) -> None:
    made = await caller.http.post("/v1/groups", json={"name": "shops", "tags": ["prod"]})
    path = f"/v1/groups/{made.json()['id']}"
    edited = await caller.http.patch(path, json={"name": "stores"}, headers={"If-Match": '"1"'})
    wanted = {"tags": ["eu"], "reason": "there is none yet"}
    nothing = await caller.http.post(f"{path}/members", json=wanted)
    deleted = await caller.http.post(f"{path}/delete", json={"reason": "sold"})

    assert [each.status_code for each in (made, edited, nothing, deleted)] == [201, 200, 200, 200]
    rows = await pool.fetch(
        "SELECT type, subject, data, attributes FROM outbox WHERE type LIKE 'asset_group.%' ORDER BY id"
    )
    assert [row["type"].rpartition(".")[2] for row in rows] == ["created", "updated", "deleted"]
    assert {row["subject"] for row in rows} == {f"group/{made.json()['id']}"}
    assert {row["attributes"]["actortype"] for row in rows} == {"api_key"}
    assert rows[0]["data"] == {
        "resource_id": made.json()["id"],
        "reason": None,
        "changes": {"name": "shops", "tags": ["prod"]},
        "metadata": {"name": "shops", "members": 0, "targets": 0},
    }
    assert rows[1]["data"]["changes"] == {"name": "stores"}
    assert (rows[2]["data"]["changes"], rows[2]["data"]["reason"]) == ({}, "sold")


async def test_a_long_list_of_a_request_is_told_by_its_length(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await world.add_target(caller, "a.test")
    group = (await caller.http.post("/v1/groups", json={"name": "shops"})).json()["id"]
    retag = {"targets": [(await caller.http.get("/v1/targets")).json()["items"][0]["id"]], "add": ["prod"]}
    await caller.http.post("/v1/targets/tags", json=retag)
    tags = ["prod", *(f"t{number}" for number in range(19))]
    members = {"tags": tags, "values": ["a.test"] * 21}
    answer = await caller.http.post(f"/v1/groups/{group}/members", json=members)

    assert answer.json()["changed"] == 1, answer.text
    data = await pool.fetchval("SELECT data FROM outbox WHERE type = 'asset_group.updated'")
    assert data["changes"] == {"tags": tags, "values": {"count": 21}}
    assert data["metadata"] == {"name": "shops", "members": 1, "targets": 1, "changed": 1}


async def test_events_of_a_request_carry_its_trace_context(caller: Caller, pool: Pool) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for number, given in enumerate((trace, "00-evil\t", "ff" + trace[2:])):
        answer = await caller.http.post(
            "/v1/groups", json={"name": f"g{number}"}, headers={"traceparent": given}
        )
        assert answer.status_code == 201

    rows = await pool.fetch(
        """SELECT attributes ->> 'traceparent' AS trace FROM outbox
           WHERE type = 'asset_group.created' ORDER BY id"""
    )
    assert [row["trace"] for row in rows] == [trace, None, None]


async def test_events_of_a_run_that_events_started_say_how_far_that_went(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    runs = [UUID(await world.start_run(caller, await world.add_target(caller, f"{n}.test"))) for n in "ab"]
    await pool.execute("UPDATE job_histories SET hops = 2 WHERE id = $1", runs[1])
    async with pool.acquire() as conn, conn.transaction():
        for run in runs:
            await load(conn, run, Owner("first", datetime.now(UTC)))

    rows = await pool.fetch(
        """SELECT attributes ->> 'hops' AS hops FROM outbox WHERE type = 'workflow.run.started' ORDER BY id"""
    )
    assert [row["hops"] for row in rows] == [None, "2"]


async def test_a_request_whose_event_cannot_be_written_changes_nothing(
    database: Database, caller: Caller, pool: Pool
) -> None:
    async with refusing(database, "runlane_api"):
        answer = await caller.http.post("/v1/groups", json={"name": "shops"})

    assert answer.status_code == 500
    assert await pool.fetchval("SELECT count(*) FROM target_groups") == 0
    assert (await caller.http.post("/v1/groups", json={"name": "shops"})).status_code == 201


async def test_what_is_published_quietly_is_lost_and_counted_when_the_database_refuses(
    database: Database, pool: Pool, workspace_id: UUID
) -> None:
    event = rejected(workspace_id)
    foreign = Envelope(uuid4(), "worker.abolished", workspace_id, "worker/x", {})
    before = COUNTS.swallowed["worker.rejected"]

    async with pool.acquire() as conn:
        async with refusing(database, "runlane_system"):
            refused = await publish_quietly(conn, [event])
        unknown = await publish_quietly(conn, [foreign])
        written = await publish_quietly(conn, [event])

    assert (refused, unknown, written) == (False, False, True)
    assert COUNTS.swallowed["worker.rejected"] == before + 1
    assert COUNTS.refused["worker.abolished"] == 1
    figures = render(publish_figures())
    assert 'bridge_unknown_event_total{type="worker.abolished"} 1' in figures
    assert 'bridge_swallowed_events_total{type="worker.rejected"}' in figures
    assert await pool.fetchval("SELECT array_agg(type) FROM outbox") == ["worker.rejected"]


async def test_what_is_published_quietly_on_a_lost_connection_raises_nothing(
    database: Database, workspace_id: UUID
) -> None:
    conn = await asyncpg.connect(database.system)
    await conn.close()

    assert not await publish_quietly(conn, [rejected(workspace_id)])


def test_names_without_end_are_counted_together() -> None:
    counts = PublishCounts()

    for number in range(MAX_NAMES + 5):
        counts.note_refused(f"job.invented{number}", "no such event")

    assert len(counts.refused) == MAX_NAMES + 1
    assert counts.refused[OTHERS] == 5


def test_an_emitting_route_keeps_its_signature() -> None:
    create = next(route for route in router.routes if getattr(route, "name", "") == "create")

    assert {"access", "body", "response"} <= set(create.endpoint.__annotations__)  # type: ignore[attr-defined]


def test_a_route_whose_event_could_not_be_read_off_it_is_refused_when_it_is_declared() -> None:
    async def remove(access: Access) -> Answer:
        raise NotImplementedError

    with pytest.raises(Defect, match="remove has no"):
        emits(EVENT_CATALOG.asset_group.deleted, Mirror(names.group_subject))(remove)
