"""A plan of a run: what it says, and that nothing of it stays."""

from uuid import uuid4

import pytest

from runlane import names
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, Caller, assert_problem
from tests.integration.scan_host import enrol

pytestmark = pytest.mark.integration

EVERY_TABLE = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1
"""


async def _rows(pool: Pool) -> dict[str, int]:
    tables = [row[0] for row in await pool.fetch(EVERY_TABLE)]
    return {table: await pool.fetchval(f"SELECT count(*) FROM {table}") for table in tables}  # noqa: S608


async def test_plan_says_jobs_queues_slots_and_what_is_missing_and_writes_nothing(
    world: ApiWorld, caller: Caller, pool: Pool
) -> None:
    targets = [await world.add_target(caller, f"h{number}.lab.test") for number in range(3)]
    body = {"definition": "domain_discovery", "targets": targets, "config": {"*": {"timeout_s": 5}}}
    before = await _rows(pool)

    missing = await caller.http.post("/v1/runs?plan=true", json=body)
    after = await _rows(pool)
    await enrol(pool, caller.workspace_id, slots=7)
    served = (await caller.http.post("/v1/runs?plan=true", json=body)).json()

    assert missing.status_code == 200, missing.text
    assert missing.json()["missing"] == ["no live worker for the tool set probe"]
    assert after == before
    assert served["missing"] == []
    first, second = served["steps"][:2]
    assert (first["step_id"], first["jobs"], first["is_exact"]) == ("subdomains", 3, True)
    assert first["routes"] == [
        {
            "task_queue": names.scan_queue(caller.workspace_id, "probe"),
            "network": None,
            "jobs": 3,
            "slots": 7,
        }
    ]
    # the names of the targets are assets already; what the first step finds comes on top
    assert (second["step_id"], second["jobs"], second["is_exact"]) == ("ports", 3, False)


async def test_plan_is_refused_for_the_reasons_of_a_start(world: ApiWorld, caller: Caller) -> None:
    target = await world.add_target(caller)
    for body, query, status, code in (
        ({"definition": "domain_discovery", "targets": [str(uuid4())]}, "plan=true", 404, "target.not_found"),
        ({"definition": "no_such", "targets": [target]}, "plan=true", 422, "definition.unknown"),
        ({"definition": "domain_discovery", "targets": [target]}, "plan=perhaps", 422, "request.invalid"),
        ({"definition": "domain_discovery", "targets": [target]}, "dry=true", 422, "request.invalid"),
    ):
        assert_problem(await caller.http.post(f"/v1/runs?{query}", json=body), status, code)
