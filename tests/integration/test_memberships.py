"""Which assets are in which project: what a plain model says, whatever comes twice, late or at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanes.evaluations import evaluate
from lanes.projects import ProjectsSink
from runlane import names
from runlane.db import memberships, triggers
from runlane.db.acts import Act
from runlane.db.memberships import About
from runlane.db.pool import Pool
from runlane.db.projects import ProjectEdit, create_project, delete_project, edit_project
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import AssetDiscovered
from runlane.projects import Rule, RuleKind
from runlane.settings import Settings
from tests.integration.event_bus import lane, produce, relay, running
from tests.integration.merge_world import START
from tests.integration.test_plans import plan
from tests.waiting import until

pytestmark = pytest.mark.integration

LEVELS = ("info", "low", "medium", "high", "critical")
HOSTS = ("a.test", "b.a.test", "ba.test", "c.b.a.test", "test", "192.0.2.1")
ADDRESSES = ("192.0.2.1", "192.0.2.130", "2001:db8::1")
TAGS = ("red", "blue")


@dataclass(frozen=True)
class Seen:
    """An asset as scans saw it."""

    host: str
    tags: frozenset[str]
    addresses: frozenset[str]
    ports: frozenset[int]
    technologies: frozenset[str]
    severities: frozenset[str]
    is_gone: bool


def fits(rule: Rule, seen: Seen) -> bool:
    """The model: whether a rule fits an asset."""
    match rule.kind:
        case RuleKind.DOMAIN:
            return f".{seen.host}".endswith(f".{rule.value}")
        case RuleKind.CIDR:
            network = ip_network(rule.value)
            return any(ip_address(each) in network for each in seen.addresses)
        case RuleKind.TAG:
            return rule.value in seen.tags
        case RuleKind.PORT:
            return int(rule.value) in seen.ports
        case RuleKind.TECHNOLOGY:
            return bool(seen.ports) and rule.value in {each.lower() for each in seen.technologies}
        case RuleKind.SEVERITY:
            return any(LEVELS.index(each) >= LEVELS.index(rule.value) for each in seen.severities)
        case _:
            raise AssertionError(rule)


SEEN = st.builds(
    Seen,
    st.sampled_from(HOSTS),
    st.frozensets(st.sampled_from(TAGS)),
    st.frozensets(st.sampled_from(ADDRESSES)),
    st.frozensets(st.sampled_from((80, 443))),
    st.frozensets(st.sampled_from(("nginx", "PHP"))),
    st.frozensets(st.sampled_from(LEVELS), max_size=2),
    st.booleans(),
)
RULES = st.one_of(
    st.builds(Rule, st.just(RuleKind.DOMAIN), st.sampled_from(("a.test", "b.a.test", "test"))),
    st.builds(Rule, st.just(RuleKind.CIDR), st.sampled_from(("192.0.2.0/25", "2001:db8::/32", "0.0.0.0/0"))),
    st.builds(Rule, st.just(RuleKind.TAG), st.sampled_from(TAGS)),
    st.builds(Rule, st.just(RuleKind.PORT), st.sampled_from(("80", "443"))),
    st.builds(Rule, st.just(RuleKind.TECHNOLOGY), st.sampled_from(("nginx", "php"))),
    st.builds(Rule, st.just(RuleKind.SEVERITY), st.sampled_from(LEVELS)),
)
SCOPES = st.lists(RULES, min_size=1, max_size=3)


async def write(pool: Pool, workspace_id: UUID, seen: Seen) -> UUID:
    """Writes an asset, of a target of its own."""
    target_id = await pool.fetchval(
        """INSERT INTO targets (workspace_id, kind, value, tags)
           VALUES ($1, 'domain', gen_random_uuid()::text, $2) RETURNING id""",
        workspace_id, sorted(seen.tags),
    )  # fmt: skip
    asset_id: UUID = await pool.fetchval(
        """INSERT INTO assets (workspace_id, target_id, value, addresses, first_seen, last_seen, gone_at)
           VALUES ($1, $2, $3, $4::text[]::inet[], $5, $5, CASE WHEN $6 THEN $5::timestamptz END)
           RETURNING id""",
        workspace_id, target_id, seen.host, sorted(seen.addresses), START, seen.is_gone,
    )  # fmt: skip
    for port in seen.ports:
        service_id = await pool.fetchval(
            """INSERT INTO asset_services (workspace_id, asset_id, port, protocol, first_seen, last_seen)
               VALUES ($1, $2, $3, 'tcp', $4, $4) RETURNING id""",
            workspace_id, asset_id, port, START,
        )  # fmt: skip
        for name in seen.technologies:
            await pool.execute(
                """INSERT INTO technologies (workspace_id, service_id, name, first_seen, last_seen)
                   VALUES ($1, $2, $3, $4, $4)""",
                workspace_id, service_id, name, START,
            )  # fmt: skip
    for level in seen.severities:
        await pool.execute(
            """INSERT INTO vulnerabilities (workspace_id, asset_id, check_id, name, severity, fingerprint,
                                            first_seen, last_seen)
               VALUES ($1, $2, 'x', 'x', $3::text, sha256(($2::uuid::text || $3)::bytea), $4, $4)""",
            workspace_id, asset_id, level, START,
        )  # fmt: skip
    return asset_id


async def make(pool: Pool, workspace_id: UUID, name: str, rules: Sequence[Rule]) -> UUID:
    """Makes a project."""
    async with pool.acquire() as conn, conn.transaction():
        made = await create_project(conn, workspace_id, name, rules, Act())
    return UUID(str(made["id"]))


async def take_in(pool: Pool, workspace_id: UUID, asset_ids: Sequence[UUID]) -> None:
    """Decides about assets as a turn of the lane does."""
    async with pool.acquire() as conn, conn.transaction():
        await memberships.take_in(conn, workspace_id, [About(each) for each in asset_ids])


async def evaluate_all(pool: Pool) -> None:
    """Compares all assets with all projects that are due."""
    while await evaluate(pool):
        pass


async def inside(pool: Pool, project_id: UUID) -> set[UUID]:
    """Assets that are in a project."""
    rows = await pool.fetch("SELECT asset_id FROM project_assets WHERE project_id = $1", project_id)
    return {row["asset_id"] for row in rows}


async def balance(pool: Pool, project_id: UUID) -> Counter[str]:
    """How many assets events say came into a project, and how many left it."""
    rows = await pool.fetch(
        """SELECT type, sum((data ->> 'assets')::int)::int AS assets FROM outbox
           WHERE starts_with(type, 'project.assets.') AND data ->> 'project_id' = $1::text GROUP BY type""",
        str(project_id),
    )
    return Counter({row["type"].rpartition(".")[2]: row["assets"] for row in rows})


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seen=st.lists(SEEN, min_size=1, max_size=8),
    scopes=st.lists(SCOPES, min_size=1, max_size=3),
    changed=SCOPES,
    is_lane_first=st.booleans(),
)
async def test_membership_is_what_the_model_says_and_events_balance(
    pool: Pool, seen: list[Seen], scopes: list[list[Rule]], changed: list[Rule], is_lane_first: bool
) -> None:
    workspace_id = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('w') RETURNING id")
    ids = {await write(pool, workspace_id, each): each for each in seen}
    projects = {await make(pool, workspace_id, f"p{n}", rules): rules for n, rules in enumerate(scopes)}

    async def check() -> None:
        for project_id, rules in projects.items():
            expected = {
                asset_id
                for asset_id, each in ids.items()
                if not each.is_gone and any(fits(rule, each) for rule in rules)
            }
            assert await inside(pool, project_id) == expected
            told = await balance(pool, project_id)
            assert told["added"] - told["removed"] == len(expected)

    for _ in range(2):
        await (take_in(pool, workspace_id, list(ids)) if is_lane_first else evaluate_all(pool))
        await check()
    before = {each: await balance(pool, each) for each in projects}
    await evaluate_all(pool)
    await take_in(pool, workspace_id, list(ids))
    assert {each: await balance(pool, each) for each in projects} == before

    first = next(iter(projects))
    async with pool.acquire() as conn, conn.transaction():
        await edit_project(conn, workspace_id, first, ProjectEdit(1, rules=changed), Act())
    projects[first] = changed
    await evaluate_all(pool)
    await check()


async def test_assets_that_come_while_rules_change_are_in_once_and_as_the_last_rules_say(
    pool: Pool, workspace_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memberships, "PORTION", 7)
    nothing: frozenset[str] = frozenset()
    project_id = await make(pool, workspace_id, "p", [Rule(RuleKind.DOMAIN, "a.test")])
    sights = [
        Seen(host, nothing, nothing, frozenset(), nothing, nothing, is_gone=False)
        for host in ("x.a.test", "x.b.test") * 20
    ]
    found: list[UUID] = []

    async def discover() -> None:
        for each in sights:
            found.append(await write(pool, workspace_id, each))
            await take_in(pool, workspace_id, found[-3:])
            if len(found) % 10 == 0:
                await pool.execute("DELETE FROM assets WHERE id = $1", found.pop(0))

    async def change() -> None:
        for version in range(1, 11):
            rule = Rule(RuleKind.DOMAIN, "b.test" if version % 2 else "a.test")
            async with pool.acquire() as conn, conn.transaction():
                await edit_project(conn, workspace_id, project_id, ProjectEdit(version, rules=[rule]), Act())
            await asyncio.gather(evaluate(pool), evaluate(pool))

    await asyncio.gather(discover(), change(), evaluate_all(pool))
    await evaluate_all(pool)

    rows = await pool.fetch("SELECT id FROM assets WHERE value = 'x.a.test'")
    assert await inside(pool, project_id) == {row["id"] for row in rows}
    async with pool.acquire() as conn, conn.transaction():
        await delete_project(conn, workspace_id, project_id, Act())
    await evaluate_all(pool)
    await take_in(pool, workspace_id, found)
    assert await inside(pool, project_id) == set()


async def test_lane_that_is_killed_again_and_again_takes_each_asset_in_once(
    pool: Pool, workspace_id: UUID, settings: Settings
) -> None:
    nothing: frozenset[str] = frozenset()
    project_id = await make(pool, workspace_id, "p", [Rule(RuleKind.DOMAIN, "a.test")])
    await evaluate_all(pool)
    seen = Seen("x.a.test", nothing, nothing, frozenset(), nothing, nothing, is_gone=False)

    async with running(lane(settings, ProjectsSink())) as driving, running(relay(settings)):
        found: list[UUID] = []
        for _ in range(5):
            fresh = [await write(pool, workspace_id, seen) for _ in range(20)]
            found += fresh
            await produce(pool, [_discovered(workspace_id, each) for each in fresh])
            await driving.restart()

        async def are_all_in() -> bool:
            return await inside(pool, project_id) == set(found)

        await until(are_all_in)

    assert (await balance(pool, project_id))["added"] == len(found)


async def test_project_of_many_rules_reads_a_portion_of_many_assets_and_not_all(
    pool: Pool, workspace_id: UUID
) -> None:
    target_id = await pool.fetchval(
        "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', 'a.test') RETURNING id",
        workspace_id,
    )
    await pool.execute(
        """INSERT INTO assets (workspace_id, target_id, value, first_seen, last_seen)
           SELECT $1, $2, 'h' || n || '.d' || n % 400 || '.test', now(), now()
           FROM generate_series(1, 20000) n""",
        workspace_id, target_id,
    )  # fmt: skip
    domains = [[Rule(RuleKind.DOMAIN, f"d{100 * p + n}.test") for n in range(100)] for p in range(2)]
    projects = [await make(pool, workspace_id, f"p{n}", rules) for n, rules in enumerate(domains)]
    for _ in range(4):
        await evaluate(pool)
    await pool.execute("ANALYZE assets, project_assets, project_scopes, projects, gathered_targets")

    portion = await plan(pool, memberships.NEXT_ASSETS, workspace_id, None, START, 1_000)
    settle = await plan(pool, memberships.SETTLE, workspace_id, projects[:1], projects)
    due = await plan(pool, memberships.NEXT_DUE)
    called = await plan(pool, triggers.CALL_PROJECTS)

    assert await pool.fetchval("SELECT count(*) FROM project_assets") == 4 * memberships.PORTION / 4
    assert len(await inside(pool, projects[0])) == memberships.PORTION
    for text in (portion, settle):
        assert "Seq Scan on assets" not in text
        assert "Seq Scan on project_assets" not in text
    assert "Seq Scan" not in due or "projects_due" in due
    assert "gathered_targets" in called


def _discovered(workspace_id: UUID, asset_id: UUID) -> Envelope:
    payload = AssetDiscovered(asset_id=asset_id, target_id=asset_id, value="x.a.test", run_id=asset_id)
    return envelope(
        EVENT_CATALOG.asset.discovered,
        payload,
        workspace_id=workspace_id,
        subject=names.asset_subject(asset_id),
    )
