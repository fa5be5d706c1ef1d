"""Integrations over the API and the command line, and one event on its whole way to a receiver."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from standardwebhooks import Webhook
from temporalio.client import Client
from temporalio.worker import Worker

from lanes.commands import run_command_relay
from lanes.integrations import IntegrationsSink
from runlane import names
from runlane.db import integration_secrets
from runlane.db.integration_secrets import Place, open_secrets
from runlane.db.pool import Pool
from runlane.keyring import Keyring
from runlane.settings import Settings
from runlane.worker import RUNNER, run_deliveries
from tests.integration.api_world import ApiWorld, Caller, assert_problem, open_api, served
from tests.integration.delivery_world import DeliveryWorld, cancelled, delivery_world
from tests.integration.event_bus import lane, produce, relay, running
from tests.integration.test_cli_api import Terminal
from tests.receivers import Received, Receiver, Reply, receiver
from tests.waiting import until
from workflows.deliver import DeliverWorkflow

pytestmark = pytest.mark.integration

PATH = "/v1/integrations"
SECRET = "the-value-of-a-header"
HOOK = {
    "kind": "webhook",
    "name": "siem",
    "config": {"url": "https://hooks.example.com/in"},
    "secrets": {"header.X-Token": SECRET},
    "events": ["job.*"],
}


async def connected(caller: Caller, **changes: object) -> dict[str, object]:
    """Connects a webhook; what was answered."""
    answer = await caller.http.post(PATH, json={**HOOK, **changes})
    assert answer.status_code == 201, answer.text
    made: dict[str, object] = answer.json()
    return made


@asynccontextmanager
async def ways_of(world: ApiWorld, caller: Caller) -> AsyncIterator[DeliveryWorld]:
    """Deliveries of the workspace of a caller."""
    async with delivery_world(world.settings, world.pool, caller.workspace_id) as opened:
        yield opened


def ok(_request: Received) -> Reply:
    return Reply(200, b"thanks")


def troubled(_request: Received) -> Reply:
    return Reply(500)


async def test_integration_is_connected_changed_and_disconnected_and_each_act_is_audited(
    caller: Caller, pool: Pool
) -> None:
    made = await connected(caller)
    path = f"{PATH}/{made['id']}"
    twice = await caller.http.post(PATH, json=HOOK)
    shown = await caller.http.get(path)
    tag = {"If-Match": shown.headers["ETag"]}
    edited = await caller.http.patch(path, json={"events": [], "name": "other"}, headers=tag)
    stale = await caller.http.patch(path, json={"name": "third"}, headers=tag)
    for act in ("disable", "disable", "enable", "enable"):
        assert (await caller.http.post(f"{path}/{act}", json={})).status_code == 200
    gone = await caller.http.post(f"{path}/delete", json={"reason": "no longer"})
    again = await caller.http.post(f"{path}/delete", json={})

    assert str(made["signing_key"]).startswith("whsec_")
    assert_problem(twice, 409, "integration.duplicate")
    assert edited.json()["name"] == "other"
    assert_problem(stale, 412, "etag.stale")
    assert gone.status_code == 200
    assert_problem(again, 404, "integration.not_found")
    assert (await caller.http.get(PATH)).json()["items"] == []
    audited = await pool.fetch(
        "SELECT type, data->'changes' AS changes FROM outbox WHERE type ~ '^integ' ORDER BY id"
    )
    assert [tuple(row) for row in audited] == [
        ("integration.connected", None),
        ("integration.settings.updated", ["name", "events"]),
        ("integration.settings.updated", ["status"]),
        ("integration.settings.updated", ["status"]),
        ("integration.disconnected", None),
    ]


async def test_secrets_are_written_and_never_shown_nor_sent_to_another_address(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    made = await connected(caller)
    path = f"{PATH}/{made['id']}"
    shown = await caller.http.get(path)
    listed = await caller.http.get(PATH)
    tag = {"If-Match": shown.headers["ETag"]}
    elsewhere = {"config": {"url": "https://elsewhere.example.com/"}}
    moved = await caller.http.patch(path, json=elsewhere, headers=tag)
    whole = await caller.http.patch(path, json={**elsewhere, "secrets": {}}, headers=tag)

    assert_problem(moved, 422, "integration.secrets")
    assert whole.status_code == 200, whole.text
    assert SECRET not in shown.text + listed.text + json.dumps(made) + moved.text
    assert str(made["signing_key"]) not in shown.text + listed.text + whole.text
    stored = await pool.fetch("SELECT string_agg(t::text, '') AS all FROM integrations t")
    assert SECRET not in stored[0]["all"]
    async with pool.acquire() as conn:
        keyring = Keyring.of(world.settings.secret_key_texts)
        left = await open_secrets(conn, _place(caller, made), keyring)
    assert left.secrets == {}
    assert left.signing == (made["signing_key"],)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"config": {"url": "https://127.0.0.1/"}}, "integration.config"),
        ({"config": {"url": "http://example.com/"}}, "integration.config"),
        ({"config": {}}, "integration.config"),
        ({"events": ["no.such"]}, "integration.events"),
        ({"events": ["notification.*"]}, "integration.events"),
        ({"least_severity": "none"}, "request.invalid"),
        ({"kind": "pigeon"}, "request.invalid"),
        ({"secrets": {"header.Host": "x"}}, "integration.config"),
        ({"secrets": {"signing": "x"}}, "integration.config"),
    ],
)
async def test_what_cannot_be_an_integration_is_refused(
    caller: Caller, changes: dict[str, object], code: str
) -> None:
    answer = await caller.http.post(PATH, json={**HOOK, **changes})

    assert_problem(answer, 422, code)
    assert SECRET not in answer.text


async def test_rotated_signing_key_and_the_one_before_both_sign_for_a_day(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    made = await connected(caller)
    place, keyring = _place(caller, made), Keyring.of(world.settings.secret_key_texts)
    path = f"{PATH}/{made['id']}/rotate"
    rotated = [(await caller.http.post(path)).json()["signing_key"] for _ in range(2)]
    async with pool.acquire() as conn:
        both = (await open_secrets(conn, place, keyring)).signing
        await conn.execute("UPDATE integration_secrets SET expires_at = now() WHERE expires_at IS NOT NULL")
        later = (await open_secrets(conn, place, keyring)).signing

    assert both == (rotated[1], rotated[0])
    assert later == (rotated[1],)


async def test_keys_of_secrets_are_rotated_for_integrations_too(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    made = await connected(caller)
    newer = Keyring.of(["newer " * 8, *world.settings.secret_key_texts])
    async with pool.acquire() as conn, conn.transaction():
        rotated = [await integration_secrets.rotate(conn, newer) for _ in range(2)]
        opened = await open_secrets(conn, _place(caller, made), Keyring.of(["newer " * 8]))

    assert rotated == [2, 0]
    assert opened.secrets == {"header.X-Token": SECRET}


async def test_deliveries_are_shown_and_made_once_more_by_hand(world: ApiWorld, caller: Caller) -> None:
    async with ways_of(world, caller) as ways, receiver(ok) as target:
        hook = await ways.connect(target.url)
        await ways.hear(*(cancelled(caller.workspace_id) for _ in range(3)))
        await ways.deliver(hook)
        rows = (await caller.http.get(f"{PATH}/{hook}/deliveries")).json()["items"]
        path = f"/v1/deliveries/{rows[0]['id']}"
        again = [(await caller.http.post(f"{path}/replay", json={})).json()["id"] for _ in range(2)]
        since = {"since": rows[-1]["created_at"]}
        bulk = [(await caller.http.post(f"{PATH}/{hook}/replay", json=since)).json() for _ in range(2)]
        await ways.deliver(hook)
        shown = (await caller.http.get(path)).json()
        async with world.caller_of(caller.workspace_id, ["integrations:read"]) as reader:
            seen = (await reader.http.get(path)).json()
            refused = await reader.http.post(f"{path}/replay", json={})

    assert [row["state"] for row in rows] == ["delivered"] * 3
    assert again[0] == again[1]
    assert bulk == [{"deliveries": 2, "has_more": False}, {"deliveries": 0, "has_more": False}]
    sent = [request.headers["webhook-id"] for request in target.received]
    assert sorted(sent[:3]) == sorted(sent[3:])
    assert shown["tries"][0]["excerpt"] == "thanks"
    assert shown["body"]["type"] == "job.cancelled"
    assert seen["tries"][0]["excerpt"] is None
    assert_problem(refused, 403, "key.scope")
    acts = await ways.told("operator.")
    assert len(acts) == 2


async def test_a_test_is_no_event_and_is_attempted_once(world: ApiWorld, caller: Caller) -> None:
    async with ways_of(world, caller) as ways, receiver(troubled) as target:
        hook = await ways.connect(target.url)
        sent = await caller.http.post(f"{PATH}/{hook}/test")
        await ways.deliver(hook)
        shown = (await caller.http.get(f"/v1/deliveries/{sent.json()['id']}")).json()
        await caller.http.post(f"{PATH}/{hook}/disable", json={})
        refused = await caller.http.post(f"{PATH}/{hook}/test")

    assert sent.status_code == 202
    assert (shown["state"], shown["status"], shown["attempts"]) == ("failed", 500, 1)
    assert target.received[0].json["type"] == "integration.test"
    assert_problem(refused, 409, "integration.disabled")
    assert await ways.told() == ["integration.connected", "integration.settings.updated"]


async def test_event_reaches_a_receiver_through_all_parts_and_commands_show_it(
    settings: Settings, pool: Pool, tmp_path: Path
) -> None:
    """Outbox, relay, lane, command, workflow, transport: and a second event while the workflow has ended."""
    inside = settings.model_copy(update={"outbound_networks": "127.0.0.0/8"})
    temporal = await Client.connect(settings.temporal_address)
    core = Worker(temporal, task_queue=names.CORE_QUEUE, workflows=[DeliverWorkflow], workflow_runner=RUNNER)
    async with open_api(inside, pool) as world, world.caller("ours") as caller, served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        async with (
            core,
            running(lambda stop: run_deliveries(inside, stop)),
            running(relay(inside)),
            running(lane(inside, IntegrationsSink())),
            running(lambda stop: run_command_relay(inside, stop)),
            receiver(ok) as target,
        ):
            added = await terminal.run(
                "integration",
                "add",
                "webhook",
                "siem",
                "--set",
                f"url=http://127.0.0.1:{target.port}",
                "--json",
            )
            assert added.code == 0, added.err
            await until(lambda: _has_lane(pool))
            for number in (1, 2):
                await produce(pool, [cancelled(caller.workspace_id)])
                await until(partial(_reached, target, number))
            tested = await terminal.run("integration", "test", "siem")
        listed = await terminal.run("integration", "deliveries", "siem", "--json")
        removed = await terminal.run("integration", "remove", "siem")

    key = json.loads(added.out)["signing_key"]
    for request in target.received:
        assert Webhook(key).verify(request.body, dict(request.headers))
    assert (tested.code, removed.code) == (0, 0), tested.err + removed.err
    states = [(row["type"], row["state"]) for row in json.loads(listed.out)["items"]]
    assert states.count(("job.cancelled", "delivered")) == 2
    assert ("integration.test", "delivered") in states


async def _has_lane(pool: Pool) -> bool:
    query = "SELECT live_at IS NOT NULL FROM lane_checkpoints WHERE lane = 'integrations'"
    return bool(await pool.fetchval(query))


def _reached(target: Receiver, number: int) -> bool:
    return [request.json["type"] for request in target.received].count("job.cancelled") == number


def _place(caller: Caller, made: dict[str, object]) -> Place:
    return Place(caller.workspace_id, UUID(str(made["id"])))
