"""Merges that meet: at the same time, in any order, in any grouping."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db.inventory import MergeJob, lock_subjects, merge
from runlane.db.pool import Connection, Pool
from runlane.tools import Category
from tests.integration.merge_world import TOOL_OF, World, at, picture, untold

pytestmark = pytest.mark.integration

ROUNDS = 200
HOSTS = ("a.lab.test", "b.lab.test", "c.lab.test", "d.lab.test")
ADDRESS = "127.7.0.3"
Groups = Mapping[Category, Sequence[MergeJob]]

# everything but ids, the moment of writing and which run came first among equals
STATE = (
    "SELECT value, is_primary, records, addresses, run_id, first_seen, last_seen FROM assets"
    " WHERE workspace_id = $1 ORDER BY value",
    "SELECT a.value, p.address, p.port, p.run_id, p.first_seen, p.last_seen FROM ports p"
    " JOIN assets a ON a.id = p.asset_id WHERE p.workspace_id = $1 ORDER BY 1, 2, 3",
    "SELECT a.value, s.port, s.address, s.banner, s.is_tls, s.run_id, s.first_seen, s.last_seen"
    " FROM asset_services s JOIN assets a ON a.id = s.asset_id WHERE s.workspace_id = $1 ORDER BY 1, 2",
    "SELECT url, status, content_type, source, run_id, first_seen, last_seen FROM urls"
    " WHERE workspace_id = $1 ORDER BY url",
    "SELECT check_id, url, severity, name, evidence, run_id, first_seen, last_seen, status"
    " FROM vulnerabilities WHERE workspace_id = $1 ORDER BY 1, 2",
    "SELECT t.name, t.version, t.first_seen, t.last_seen FROM technologies t"
    " WHERE t.workspace_id = $1 ORDER BY 1, 2, 3, 4",
    "SELECT job_id, ports, observed_at FROM port_observations WHERE workspace_id = $1 ORDER BY 1",
    "SELECT job_id, url, status, observed_at FROM http_responses WHERE workspace_id = $1 ORDER BY 1, 2",
    "SELECT o.run_id, u.url, o.job_id, o.status, o.depth FROM url_observations o"
    " JOIN urls u ON u.id = o.url_id WHERE o.workspace_id = $1 ORDER BY 1, 2",
    "SELECT run_id, job_id, url, size_bytes, observed_at FROM screenshots WHERE workspace_id = $1"
    " ORDER BY 1, 2, 3",
)


SEEN: Mapping[Category, dict[str, object]] = {
    Category.SUBDOMAINS: {"name": "new.lab.test", "records": {}},
    Category.PORTS_SCANNER: {
        "port": 443, "protocol": "tcp", "address": ADDRESS, "banner": None, "tls": None,
    },
    Category.URL_DISCOVERY: {
        "url": "http://app.lab.test:8080/a", "status": 200, "depth": 0, "source": "link",
    },
    Category.VULNERABILITIES: {
        "check": "exposed-git", "name": "n", "severity": "low", "url": "http://app.lab.test:8080/a",
    },
}  # fmt: skip
MISSES = """
SELECT coalesce(sum(missed), 0) FROM (
  SELECT workspace_id, last_seen, missed FROM assets
  UNION ALL SELECT workspace_id, last_seen, missed FROM ports
  UNION ALL SELECT workspace_id, last_seen, missed FROM asset_services
  UNION ALL SELECT workspace_id, last_seen, missed FROM urls
  UNION ALL SELECT workspace_id, last_seen, missed FROM vulnerabilities
) AS seen WHERE workspace_id = $1 AND last_seen = $2
"""


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool)


def some_record(dice: random.Random, category: Category, host: str) -> dict[str, object]:
    """A record from a small set, so that many jobs see the same thing differently."""
    origin = f"http://{host}:{dice.choice((8080, 8081))}/"
    status = dice.choice((200, 404, None))
    match category:
        case Category.SUBDOMAINS:
            name = dice.choice((*HOSTS, "lab.test", "e.lab.test"))
            return {"name": name, "records": {"A": [ADDRESS, f"127.0.0.{dice.randint(1, 9)}"]}}
        case Category.PORTS_SCANNER:
            address, port = dice.choice((ADDRESS, "127.7.0.4")), dice.choice((22, 80, 443, 8080))
            banner = dice.choice((None, "x", "y"))
            return {"port": port, "protocol": "tcp", "address": address, "banner": banner, "tls": None}
        case Category.HTTP_PROBE:
            technologies = [{"name": "nginx", "version": dice.choice(("1", "2", None))}]
            title = dice.choice(("x", "y"))
            return {"url": origin, "status": status or 500, "title": title, "technologies": technologies}
        case Category.URL_DISCOVERY:
            url = origin + dice.choice("abc")
            return {"url": url, "status": status, "depth": dice.randint(0, 3), "source": "link"}
        case Category.SCREENSHOT:
            return picture(origin, dice.choice((b"x", b"y")))
        case _:
            url, severity = origin + dice.choice("ab"), dice.choice(("low", "high"))
            return {"check": "exposed-git", "name": "n", "severity": severity, "url": url}


def coverage_of(category: Category, host: str) -> dict[str, object]:
    """Coverage of everything that `some_record` makes for that category."""
    match category:
        case Category.SUBDOMAINS:
            return {"zone": "lab.test", "method": ["axfr"]}
        case Category.PORTS_SCANNER:
            return {"address": ADDRESS, "ports": "1-65535"}
        case Category.URL_DISCOVERY:
            return {"scope": f"http://{host}:8080/"}
        case _:
            return {"url": f"http://{host}:8080/", "checks": ["exposed-git"]}


async def merge_all(conn: Connection, groups: Groups) -> None:
    """One transaction as the settling of a mixed group makes it."""
    async with conn.transaction():
        await lock_subjects(conn, groups)
        for category, jobs in groups.items():
            await merge(conn, category, jobs, untold)


async def test_merges_of_the_same_assets_at_the_same_time_never_deadlock(world: World) -> None:
    assets = {host: await world.add_asset(host, ADDRESS) for host in HOSTS}
    dice = random.Random(7)

    def some_groups(minute: int) -> Groups:
        groups: dict[Category, list[MergeJob]] = {}
        for category in dice.sample(list(TOOL_OF), k=3):
            for host in dice.sample(HOSTS, k=3):
                raws = [some_record(dice, category, host) for _ in range(dice.randint(0, 4))]
                looked = coverage_of(category, host)
                job = world.job(category, *raws, minute=minute, coverage=looked, asset_id=assets[host])
                groups.setdefault(category, []).append(job)
        return groups

    async with world.pool.acquire() as first, world.pool.acquire() as second, world.pool.acquire() as third:
        for minute in range(ROUNDS):
            batches = [some_groups(minute) for _ in range(3)]
            pairs = zip((first, second, third), batches, strict=True)
            await asyncio.gather(*(merge_all(conn, groups) for conn, groups in pairs))

    closed = await world.rows("SELECT FROM ports WHERE workspace_id = $1 AND closed_at IS NOT NULL")
    assert closed  # the rounds did close and reopen things


async def test_two_new_names_in_opposite_order_at_the_same_time_never_deadlock(world: World) -> None:
    async def merge_names(conn: Connection, names: Sequence[str], minute: int) -> None:
        raws = [{"name": f"{name}{minute}.lab.test"} for name in names]
        async with conn.transaction():
            for raw in raws:
                job = world.job(Category.SUBDOMAINS, raw, minute=minute)
                await merge(conn, Category.SUBDOMAINS, [job], untold)

    async with world.pool.acquire() as first, world.pool.acquire() as second:
        for minute in range(ROUNDS // 4):
            await asyncio.gather(
                merge_names(first, ("x", "y", "z"), minute), merge_names(second, ("z", "y", "x"), minute)
            )

    assert len(await world.rows("SELECT FROM assets WHERE workspace_id = $1")) == 2 + 3 * (ROUNDS // 4)


def one_by_one(jobs: Sequence[MergeJob]) -> list[Sequence[MergeJob]]:
    return [[job] for job in jobs]


def in_two_halves(jobs: Sequence[MergeJob]) -> list[Sequence[MergeJob]]:
    return [jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]]


@pytest.mark.parametrize("category", list(TOOL_OF))
@pytest.mark.parametrize("grouping", [one_by_one, in_two_halves], ids=lambda each: each.__name__)
async def test_any_order_of_merging_gives_the_same_inventory(
    world: World, category: Category, grouping: Callable[[Sequence[MergeJob]], list[Sequence[MergeJob]]]
) -> None:
    assets = {host: await world.add_asset(host, ADDRESS) for host in HOSTS[:2]}
    await world.add_asset("lab.test")
    dice = random.Random(f"{category} {grouping.__name__}")
    runs = [await world.add_run() for _ in range(3)]
    jobs: list[MergeJob] = []
    for minute in range(1, 15):
        host = dice.choice(HOSTS[:2])
        raws = [some_record(dice, category, host) for _ in range(dice.randint(0, 5))]
        jobs.append(
            world.job(category, *raws, minute=minute, asset_id=assets[host], run_id=dice.choice(runs))
        )

    states = set()
    for _ in range(4):
        transaction_states = await _state_after(world, category, grouping(jobs))
        states.add(transaction_states)
        dice.shuffle(jobs)

    assert len(states) == 1


async def _state_after(world: World, category: Category, groups: Sequence[Sequence[MergeJob]]) -> str:
    """What the inventory would be; rolled back afterwards."""
    async with world.pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        for group in groups:
            await merge(conn, category, group, untold)
        state = [[tuple(row.values()) for row in await conn.fetch(sql, world.workspace_id)] for sql in STATE]
        await transaction.rollback()
    return repr(state)


@pytest.mark.parametrize("category", list(SEEN))
async def test_slow_look_that_is_merged_after_a_newer_one_misses_nothing(
    world: World, category: Category
) -> None:
    looked = coverage_of(category, "app.lab.test")

    async def merge_look(minute: int, *raws: Mapping[str, object]) -> int:
        await world.merge(category, world.job(category, *raws, minute=minute, coverage=looked))
        return int(await world.pool.fetchval(MISSES, world.workspace_id, at(9)))

    await merge_look(9, SEEN[category])
    slow = [await merge_look(minute) for minute in (1, 2, 3)]
    newer = await merge_look(10)

    assert slow == [0, 0, 0]
    assert newer > 0


async def test_repeated_merge_of_the_same_results_changes_nothing_more(world: World) -> None:
    dice = random.Random(3)
    jobs = [
        world.job(category, *(some_record(dice, category, "app.lab.test") for _ in range(6)), minute=index)
        for index, category in enumerate(TOOL_OF)
    ]
    by_tool = {job.tool_id: job for job in jobs}
    states = []
    for _ in range(2):
        for category, tool in TOOL_OF.items():
            await world.merge(category, by_tool[tool])
        states.append([await world.rows(sql) for sql in STATE])

    assert states[0] == states[1]
    assert all(states[0])


def test_lock_keys_fit_the_database() -> None:
    greatest = UUID(int=(1 << 128) - 1)

    assert -(2**31) <= int.from_bytes(greatest.bytes[-4:], signed=True) < 2**31
