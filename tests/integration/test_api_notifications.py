"""The API of notifications: an inbox for each name, rules and mutes of the workspace."""

from uuid import UUID, uuid4

import pytest

from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem
from tests.integration.inboxes import add_key, failed, tell

pytestmark = pytest.mark.integration

ROOT = "/v1/notifications"


async def test_inbox_is_listed_counted_and_marked_by_its_own_name_only(
    world: ApiWorld, caller: Caller, settings: Settings, pool: Pool
) -> None:
    key = await add_key(pool, settings, caller.workspace_id, "ann")
    await tell(pool, [failed(caller.workspace_id) for _ in range(5)])
    async with world.anybody(key) as ann:
        page = (await ann.get(ROOT, params={"limit": 3})).json()
        rest = (await ann.get(ROOT, params={"limit": 3, "after": page["next"]})).json()
        rows = page["items"] + rest["items"]
        ids = [row["id"] for row in rows]
        assert len(set(ids)) == 5
        assert rest["next"] is None
        assert rows[0]["text"].startswith("job failed")

        assert (await ann.post(f"{ROOT}/read", json={"ids": ids[:1]})).json() == {"changed": 1}
        assert (await ann.post(f"{ROOT}/read", json={"ids": ids[:2]})).json() == {"changed": 1}
        assert (await ann.get(f"{ROOT}/count")).json() == {"unread": 3}
        upto = {"all": True, "up_to": ids[3]}
        assert (await ann.post(f"{ROOT}/read", json=upto)).json() == {"changed": 2}
        unread = (await ann.get(ROOT, params={"unread": "true"})).json()["items"]
        assert [row["id"] for row in unread] == [ids[2]]
        assert (await ann.post(f"{ROOT}/unread", json={"ids": ids[:1]})).json() == {"changed": 1}
        assert (await ann.post(f"{ROOT}/read", json={"all": True})).json() == {"changed": 2}

        # the same events are in the inbox of the other name, and no other inbox can be marked
        assert (await caller.http.get(f"{ROOT}/count")).json() == {"unread": 5}
        assert (await caller.http.post(f"{ROOT}/read", json={"ids": ids})).json() == {"changed": 0}
        assert_problem(await ann.post(f"{ROOT}/read", json={}), 422, "request.invalid")


async def test_notifications_of_another_workspace_are_not_there(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    await tell(pool, [failed(caller.workspace_id)])
    (mine,) = (await caller.http.get(ROOT)).json()["items"]
    async with world.caller("theirs") as theirs:  # by the same name
        assert (await theirs.http.get(ROOT)).json()["items"] == []
        assert (await theirs.http.post(f"{ROOT}/read", json={"ids": [mine["id"]]})).json() == {"changed": 0}


async def test_rules_are_saved_by_name_and_the_default_one_comes_back(caller: Caller, pool: Pool) -> None:
    async def names() -> list[tuple[str, bool]]:
        rows = (await caller.http.get(f"{ROOT}/rules")).json()["items"]
        return [(row["name"], row["id"] is None) for row in rows]

    assert await names() == [("default", True)]
    body = {
        "name": "ours",
        "types": ["vulnerability", "job.failed"],
        "severity": "low",
        "recipients": ["test"],
    }
    first = await caller.http.put(f"{ROOT}/rules", json=body)
    again = await caller.http.put(f"{ROOT}/rules", json=body | {"severity": "high"})
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.json()["id"] == again.json()["id"]
    assert (again.json()["severity"], again.json()["types"]) == ("high", ["job.failed", "vulnerability"])
    own = (await caller.http.put(f"{ROOT}/rules", json={"name": "default", "enabled": False})).json()
    assert await names() == [("default", False), ("ours", False)]

    removed = await caller.http.post(f"{ROOT}/rules/{own['id']}/remove")
    assert removed.status_code == 200
    assert await names() == [("default", True), ("ours", False)]
    assert_problem(
        await caller.http.post(f"{ROOT}/rules/{own['id']}/remove"), 404, "notification.rule_not_found"
    )
    acts = await pool.fetch("SELECT data ->> 'action' AS act FROM outbox WHERE data ? 'action'")
    assert [row["act"] for row in acts] == ["notification.rule.save"] * 3 + ["notification.rule.remove"]


async def test_rule_that_could_never_tell_anybody_is_refused(caller: Caller) -> None:
    for body, status, code in (
        ({"types": ["job.created"]}, 422, "notification.type"),
        ({"types": ["no.such"]}, 422, "notification.type"),
        ({"types": ["notification"]}, 422, "notification.type"),
        ({"recipients": ["nobody"]}, 422, "notification.recipient"),
        ({"severity": "none"}, 422, "request.invalid"),
        ({"group": "none"}, 404, "group.not_found"),
        ({"target_id": str(UUID(int=1))}, 404, "target.not_found"),
        ({"target_id": str(UUID(int=1)), "group": "x"}, 422, "notification.about"),
    ):
        assert_problem(await caller.http.put(f"{ROOT}/rules", json={"name": "x", **body}), status, code)


async def test_mutes_are_listed_until_they_are_over_or_ended(caller: Caller) -> None:
    made = await caller.http.post(f"{ROOT}/mutes", json={"rule": "default", "for_s": 3_600, "reason": "move"})
    assert made.status_code == 201, made.text
    (listed,) = (await caller.http.get(f"{ROOT}/mutes")).json()["items"]
    assert (listed["rule"], listed["reason"], listed["type"]) == ("default", "move", None)

    for body, status, code in (
        ({"rule": "none", "for_s": 60}, 404, "notification.rule_not_found"),
        ({"type": "job.created", "for_s": 60}, 422, "notification.type"),
        ({"target_id": str(uuid4()), "for_s": 60}, 404, "target.not_found"),
        ({"rule": "default", "type": "job", "for_s": 60}, 422, "request.invalid"),
        ({"type": "job", "for_s": 1}, 422, "request.invalid"),
    ):
        assert_problem(await caller.http.post(f"{ROOT}/mutes", json=body), status, code)
    assert (await caller.http.post(f"{ROOT}/mutes/{listed['id']}/remove")).status_code == 200
    assert (await caller.http.get(f"{ROOT}/mutes")).json()["items"] == []
    gone = await caller.http.post(f"{ROOT}/mutes/{listed['id']}/remove")
    assert_problem(gone, 404, "notification.mute_not_found")


async def test_group_that_a_rule_is_about_cannot_be_deleted(caller: Caller) -> None:
    group = (await caller.http.post("/v1/groups", json={"name": "shops"})).json()
    await caller.http.put(f"{ROOT}/rules", json={"name": "shops", "group": "shops"})

    assert_problem(await caller.http.post(f"/v1/groups/{group['id']}/delete"), 409, "group.in_use")


async def test_inbox_and_rules_need_their_scopes(world: ApiWorld, caller: Caller) -> None:
    async with world.caller_of(caller.workspace_id, ["notifications:read"]) as reader:
        assert (await reader.http.get(f"{ROOT}/rules")).status_code == 200
        assert_problem(await reader.http.put(f"{ROOT}/rules", json={"name": "x"}), 403, "key.scope")
    async with world.caller_of(caller.workspace_id, ["jobs:read"]) as other:
        assert_problem(await other.http.get(ROOT), 403, "key.scope")
