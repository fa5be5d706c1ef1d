"""Two workspaces on one database: neither sees, changes or learns of anything of the other's."""

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import orjson
import pytest
import pytest_asyncio
from sqlalchemy import text

from runlane.db.engine import driver, open_engine, workspace_transaction
from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, Caller, assert_problem

pytestmark = pytest.mark.integration

_INVENTORY = """
WITH asset AS (
  INSERT INTO assets (workspace_id, target_id, run_id, value, addresses, first_seen, last_seen)
  VALUES ($1, $2, $3, 'app.lab.test', '{127.7.0.3}', now(), now())
  ON CONFLICT (workspace_id, target_id, value) DO UPDATE SET last_seen = excluded.last_seen RETURNING id
), service AS (
  INSERT INTO asset_services (workspace_id, asset_id, run_id, port, protocol, url, status, tls,
                              first_seen, last_seen)
  SELECT $1, id, $3, 8443, 'tcp', 'https://app.lab.test:8443/', 200, '{"version": "TLSv1.3"}', now(), now()
  FROM asset RETURNING id, asset_id
), technology AS (
  INSERT INTO technologies (workspace_id, service_id, name, version, first_seen, last_seen)
  SELECT $1, id, v.name, v.version, now(), now()
  FROM service, (VALUES ('nginx', '1.27'), ('jQuery', NULL)) v (name, version)
), url AS (
  INSERT INTO urls (workspace_id, asset_id, service_id, run_id, url, url_sha256, status,
                    first_seen, last_seen)
  SELECT $1, asset_id, id, $3, 'https://app.lab.test:8443/a', $4, 200, now(), now() FROM service
), finding AS (
  INSERT INTO vulnerabilities (workspace_id, asset_id, service_id, run_id, check_id, name, severity,
                               fingerprint, first_seen, last_seen)
  SELECT $1, asset_id, id, $3, c, c, c, sha256(c::bytea), now(), now()
  FROM service, unnest('{low,critical,info,high}'::text[]) c
)
INSERT INTO workers (scope, workspace_id, name, token_digest, slots)
VALUES ('workspace', $1, 'edge', $4, '{"probe": 4}')
"""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A caller with one thing of each kind."""

    caller: Caller
    target: str
    run: str
    job: str


async def _furnish(world: ApiWorld, caller: Caller) -> Tenant:
    target = await world.add_target(caller)
    run = await world.start_run(caller, target)
    job = (await caller.http.get("/v1/jobs")).json()["items"][0]["id"]
    await world.pool.execute(_INVENTORY, caller.workspace_id, UUID(target), UUID(run), b"h" * 32)
    return Tenant(caller, target, run, job)


@pytest_asyncio.fixture
async def ours(world: ApiWorld) -> AsyncIterator[Tenant]:
    async with world.caller("ours") as caller:
        yield await _furnish(world, caller)


@pytest_asyncio.fixture
async def theirs(world: ApiWorld) -> AsyncIterator[Tenant]:
    async with world.caller("theirs") as caller:
        yield await _furnish(world, caller)


LISTS = {
    "/v1/targets": 1,
    "/v1/runs": 1,
    "/v1/jobs": 1,
    "/v1/assets": 2,  # the target's own name is one
    "/v1/services": 1,
    "/v1/urls": 1,
    "/v1/findings": 4,
    "/v1/workers": 1,
}


async def test_every_list_shows_own_rows_only(ours: Tenant, theirs: Tenant) -> None:
    for path, number in LISTS.items():
        mine = {row["id"] for row in (await ours.caller.http.get(path)).json()["items"]}
        others = {row["id"] for row in (await theirs.caller.http.get(path)).json()["items"]}

        assert len(mine) == len(others) == number, path
        assert not mine & others, path


async def test_every_thing_of_another_workspace_is_404(ours: Tenant, theirs: Tenant, pool: Pool) -> None:
    for method, path, body, code in [
        ("GET", f"/v1/targets/{theirs.target}", None, "target.not_found"),
        ("GET", f"/v1/runs/{theirs.run}", None, "run.not_found"),
        ("POST", f"/v1/runs/{theirs.run}/cancel", {}, "run.not_found"),
        ("POST", f"/v1/runs/{theirs.run}/resume", None, "run.not_found"),
        ("GET", f"/v1/jobs/{theirs.job}", None, "job.not_found"),
        (
            "POST",
            "/v1/runs",
            {"definition": "domain_discovery", "targets": [theirs.target]},
            "target.not_found",
        ),
    ]:
        assert_problem(await ours.caller.http.request(method, path, json=body), 404, code)
    assert await pool.fetchval("SELECT count(*) FROM job_histories WHERE status = 'accepted'") == 2


async def test_filters_by_ids_of_another_workspace_find_nothing(ours: Tenant, theirs: Tenant) -> None:
    for path in (
        f"/v1/jobs?run={theirs.run}",
        f"/v1/assets?target={theirs.target}",
        f"/v1/services?run={theirs.run}",
        f"/v1/urls?target={theirs.target}",
        f"/v1/findings?target={theirs.target}",
    ):
        assert (await ours.caller.http.get(path)).json()["items"] == [], path


async def test_inventory_rows_carry_what_a_person_needs(ours: Tenant) -> None:
    http = ours.caller.http

    service = (await http.get("/v1/services")).json()["items"][0]
    worst_first = (await http.get("/v1/findings?sort=-severity")).json()["items"]
    some = (await http.get("/v1/findings?severity=high&severity=low&status=open")).json()["items"]
    asset = (await http.get("/v1/assets?sort=value")).json()["items"][0]

    assert (service["host"], service["port"], service["technologies"]) == (
        "app.lab.test",
        8443,
        ["jQuery", "nginx 1.27"],
    )
    assert [row["severity"] for row in worst_first] == ["critical", "high", "low", "info"]
    assert {row["severity"] for row in some} == {"high", "low"}
    assert (asset["value"], asset["addresses"]) == ("app.lab.test", ["127.7.0.3"])


async def test_asset_that_answered_nothing_is_in_the_list(ours: Tenant, pool: Pool) -> None:
    await pool.execute("DELETE FROM asset_services")

    assert len((await ours.caller.http.get("/v1/assets")).json()["items"]) == LISTS["/v1/assets"]


async def test_what_is_gone_is_listed_only_if_asked_for(ours: Tenant, pool: Pool) -> None:
    await pool.execute("UPDATE assets SET gone_at = now()")
    await pool.execute("UPDATE asset_services SET closed_at = now()")
    await pool.execute("UPDATE urls SET gone_at = now()")
    for path, number in (("/v1/assets", 2), ("/v1/services", 1), ("/v1/urls", 1)):
        assert len((await ours.caller.http.get(path)).json()["items"]) == 0
        assert len((await ours.caller.http.get(path, params={"gone": "true"})).json()["items"]) == number


async def test_transaction_without_a_workspace_sees_no_row_of_any_tenant_table(
    settings: Settings, ours: Tenant, pool: Pool
) -> None:
    rows = await pool.fetch(
        """
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE a.attname = 'workspace_id' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND has_table_privilege('runlane_api', c.oid, 'SELECT')
        """
    )
    tables = [row["relname"] for row in rows]
    assert len(tables) > 30
    engine = open_engine(settings.database_api_url, size=1)
    try:
        async with engine.begin() as conn:
            for table in tables:
                count = await conn.scalar(
                    text(f"SELECT count(*) FROM {table} WHERE workspace_id IS NOT NULL")  # noqa: S608
                )
                assert count == 0, table
    finally:
        await engine.dispose()


async def test_row_security_holds_a_query_that_forgot_its_workspace(
    world: ApiWorld, ours: Tenant, theirs: Tenant
) -> None:
    engine = world.app.state.resources.engine
    async with workspace_transaction(engine, ours.caller.workspace_id) as conn:
        seen = (await conn.execute(text("SELECT DISTINCT workspace_id FROM jobs"))).scalars().all()
        changed = await driver(conn).execute("UPDATE jobs SET reason = 'x'")
        with pytest.raises(Exception, match="row-level security"):
            async with driver(conn).transaction():
                await driver(conn).execute(
                    "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'x.test')",
                    theirs.caller.workspace_id,
                )

    assert list(seen) == [ours.caller.workspace_id]
    assert changed == "UPDATE 1"


async def test_choice_of_workspace_ends_with_its_transaction(world: ApiWorld, ours: Tenant) -> None:
    engine = world.app.state.resources.engine
    async with workspace_transaction(engine, ours.caller.workspace_id) as conn:
        assert await conn.scalar(text("SELECT count(*) FROM jobs")) == 1
    async with engine.connect() as conn:
        assert await conn.scalar(text("SELECT count(*) FROM jobs")) == 0


async def test_cursor_that_somebody_wrote_is_refused_or_read_but_breaks_nothing(ours: Tenant) -> None:
    some_id = ours.run
    cursors: list[tuple[str, str, list[object]]] = [
        ("/v1/services", "port", [2**40, some_id]),
        ("/v1/services", "port", [True, some_id]),
        ("/v1/services", "port", [1.5, some_id]),
        ("/v1/services", "port", [80, "x"]),
        ("/v1/services", "last_seen", ["0001-01-01T00:00:00+14:00", some_id]),
        ("/v1/services", "last_seen", ["2026-01-01T00:00:00", some_id]),
        ("/v1/assets", "value", ["a\0b", some_id]),
        ("/v1/assets", "value", [["a"], some_id]),
        ("/v1/findings", "-severity", ["high", some_id]),
        ("/v1/jobs", "priority", [None, some_id]),
    ]
    for path, sort, values in cursors:
        raw = orjson.dumps([sort, *values])
        query = {"sort": sort, "after": base64.urlsafe_b64encode(raw).decode().rstrip("=")}

        answer = await ours.caller.http.get(path, params=query)

        assert_problem(answer, 422, "cursor.invalid")


async def test_every_order_pages_through_every_row_once(ours: Tenant) -> None:
    for path, orders in {
        "/v1/findings": ("created_at", "-created_at", "severity", "-severity", "last_seen"),
        "/v1/assets": ("value", "-value", "-last_seen"),
        "/v1/jobs": ("priority", "due_at"),
    }.items():
        for sort in orders:
            seen: list[str] = []
            query: dict[str, str | int] = {"limit": 1, "sort": sort}
            while True:
                page = (await ours.caller.http.get(path, params=query)).json()
                seen += [row["id"] for row in page["items"]]
                if page["next"] is None:
                    break
                query["after"] = page["next"]

            assert len(seen) == len(set(seen)) == LISTS[path], (path, sort)
