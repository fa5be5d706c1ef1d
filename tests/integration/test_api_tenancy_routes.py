"""Every route of the API, as its own description lists them: none reaches what is another workspace's.

A route that is added is in these tests at once. One that names a new kind of thing fails until one is made.
"""

from collections.abc import Iterator, Mapping
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.integration.api_world import ApiWorld, Caller

pytestmark = pytest.mark.integration

MANIFEST = {
    "slug": "tenant-echo",
    "name": "Echo",
    "version": "1",
    "category": "bench",
    "fans_out": "targets",
    "image": "echo",
    "digest": f"sha256:{'0' * 64}",
    "entrypoint": ["/echo"],
    "input": "stdin",
    "output": "records",
    "network": "none",
}
DEFINITION = {"name": "tenants", "jobs": {"a": {"run": "dnsprobe"}}}
MADE_BY: Mapping[str, tuple[str, str, dict[str, object]]] = {
    "window_id": (
        "POST",
        "/v1/blackouts",
        {"starts_at": "2030-01-01T00:00Z", "ends_at": "2030-01-02T00:00Z"},
    ),
    "profile_id": ("PUT", "/v1/config-profiles", {"tool": "dnsprobe", "name": "p", "options": {}}),
    "slug": ("POST", "/v1/connectors", {"manifest": MANIFEST}),
    "definition_id": ("PUT", "/v1/definitions", {"definition": DEFINITION}),
    "exclusion_id": ("POST", "/v1/exclusions", {"kind": "domain", "value": "off.test"}),
    "group_id": ("POST", "/v1/groups", {"name": "tenants"}),
    "integration_id": (
        "POST",
        "/v1/integrations",
        {"kind": "webhook", "name": "tenants", "config": {"url": "https://hooks.example.com/tenants"}},
    ),
    "limit_id": ("PUT", "/v1/limits", {"max_in_progress": 9}),
    "rate_id": ("PUT", "/v1/rates", {"per_second": 9}),
    "name": ("PUT", "/v1/secrets/tenants-own", {"value": "long enough"}),
    "rule_id": ("PUT", "/v1/notifications/rules", {"name": "tenants"}),
    "mute_id": ("POST", "/v1/notifications/mutes", {"type": "job", "for_s": 3_600}),
    "network_id": ("POST", "/v1/networks", {"name": "tenants", "cidrs": ["10.1.0.0/16"]}),
    "project_id": (
        "POST",
        "/v1/projects",
        {"name": "tenants", "rules": [{"kind": "domain", "value": "x.test"}]},
    ),
    "operation_id": ("POST", "/v1/jobs/cancel", {"tool": "nmap"}),
    "pause_id": ("POST", "/v1/pauses", {"toolset": "nmap"}),
}
"""The request that makes a thing of each kind, by the name that paths have for it."""

BODIES: Mapping[str, dict[str, object]] = {
    "/v1/integrations/{integration_id}": {"name": "mine"},
    "/v1/integrations/{integration_id}/replay": {"since": "2030-01-01T00:00Z"},
    "/v1/groups/{group_id}": {"name": "mine"},
    "/v1/groups/{group_id}/members": {"values": ["x.test"]},
    "/v1/groups/{group_id}/members/remove": {"values": ["x.test"]},
    "/v1/jobs/{job_id}/priority": {"priority": "high"},
    "/v1/networks/{network_id}": {"name": "mine"},
    "/v1/projects/{project_id}": {"name": "mine"},
    "/v1/runs/{run_id}/priority": {"priority": "high"},
    "/v1/runs/{run_id}/steps/{step_id}/priority": {"priority": "high"},
    "/v1/schedules/{schedule_id}": {"name": "mine"},
    "/v1/targets/{target_id}/network": {"network": None},
}
MAKES_ITS_OWN = {("PUT", "/v1/secrets/{name}")}
NOT_A_DOCUMENT = {
    "/v1/jobs/{job_id}/tail",
    "/v1/screenshots/{screenshot_id}/image",
    "/v1/jobs/{job_id}/result",
}
"""Routes that answer something else than a document, or nothing yet, to the owner."""


ENDLESS = {"/v1/events/stream", "/v1/notifications/stream"}
"""Streams of what is to come; `test_streams` is about them."""


async def things_of(world: ApiWorld, caller: Caller) -> dict[str, str]:
    """Makes one thing of every kind; what a path has to say to name it."""
    target = await world.add_target(caller)
    run = await world.start_run(caller, target)
    job = (await caller.http.get("/v1/jobs")).json()["items"][0]
    things = {"target_id": target, "run_id": run, "job_id": job["id"], "step_id": job["step_id"]}
    for name, (method, path, body) in MADE_BY.items():
        answer = await caller.http.request(method, path, json=body)
        assert answer.is_success, (path, answer.text)
        made = answer.json()
        things[name] = str(made[name] if name in made else made["id"])
    schedule = {"name": "tenants", "every_s": 3_600, "definition": DEFINITION, "targets": [target]}
    answer = await caller.http.post("/v1/schedules", json=schedule)
    things["schedule_id"] = answer.json()["id"]
    sent = await caller.http.post(f"/v1/integrations/{things['integration_id']}/test")
    things["delivery_id"] = sent.json()["id"]
    return things | await _seen_by_scans(world, caller.workspace_id, run)


async def _seen_by_scans(world: ApiWorld, workspace_id: UUID, run: str) -> dict[str, str]:
    worker = await world.pool.fetchval(
        """INSERT INTO workers (scope, workspace_id, name, token_digest, slots)
           VALUES ('workspace', $1, 'edge', $2, '{}') RETURNING id""",
        workspace_id,
        uuid4().bytes * 2,
    )
    seen = {"worker_id": str(worker), "screenshot_id": str(uuid4())}
    return seen | await _on_the_bus(world, workspace_id)


async def _on_the_bus(world: ApiWorld, workspace_id: UUID) -> dict[str, str]:
    """An event of the workspace, and one that a lane has given up."""
    place = 987_654_321
    await world.pool.execute(
        """INSERT INTO outbox (workspace_id, event_id, type, subject, data, bus_seq)
           VALUES ($1, gen_random_uuid(), 'job.created', 'job/x', '{}', $2)""",
        workspace_id,
        place,
    )
    letter = await world.pool.fetchval(
        """INSERT INTO dead_letters (workspace_id, lane, event_id, bus_seq, type, subject, fields, attempts,
                                     error, first_failed_at)
           VALUES ($1, 'audit', gen_random_uuid(), 1, 'job.failed', 'job/x', '{}', 5, 'no', now())
           RETURNING id""",
        workspace_id,
    )
    return {"sequence": str(place), "letter_id": str(letter)}


def operations(world: ApiWorld) -> Iterator[tuple[str, str]]:
    """Method and path of each operation."""
    for path, methods in world.app.openapi()["paths"].items():
        yield from ((method.upper(), path) for method in methods)


async def call(caller: Caller, method: str, path: str, things: Mapping[str, str]) -> httpx2.Response:
    """Calls an operation about these things, as somebody would who has read that they are there."""
    headers = {"If-Match": '"1"'} if method == "PATCH" else {}
    body = BODIES.get(path, {}) if method != "GET" else None
    return await caller.http.request(method, path.format_map(things), json=body, headers=headers)


async def test_no_operation_reaches_what_another_workspace_has(world: ApiWorld) -> None:
    async with world.caller("ours") as ours, world.caller("theirs") as theirs:
        things = await things_of(world, theirs)
        named = [each for each in operations(world) if "{" in each[1] and each not in MAKES_ITS_OWN]
        answers = {(method, path): await call(ours, method, path, things) for method, path in named}
        owned = {
            path: (await call(theirs, "GET", path, things)).status_code
            for method, path in named
            if method == "GET" and path not in NOT_A_DOCUMENT
        }

    wrong = {
        each: answer.text
        for each, answer in answers.items()
        if answer.status_code != (403 if each[1].startswith("/v1/platform/") else 404)
    }
    assert not wrong
    assert len(named) > 40
    assert set(owned.values()) == {200}, owned


async def test_no_list_shows_what_another_workspace_has(world: ApiWorld) -> None:
    async with world.caller("ours") as ours, world.caller("theirs") as theirs:
        things = await things_of(world, theirs)
        listed_by = {path for method, path in operations(world) if method == "GET" and "{" not in path}
        paths = sorted(listed_by - ENDLESS)
        hidden = {path: (await ours.http.get(path)).text for path in paths}
        shown = "".join([(await theirs.http.get(path)).text for path in paths])

    listed = set(things.values()) - {things["screenshot_id"], things["step_id"], things["delivery_id"]}
    assert not [thing for thing in listed if thing not in shown]
    assert not [(path, thing) for path, text in hidden.items() for thing in listed if thing in text]
