"""Whatever a hostile host answers costs its own record at most, never the merge."""

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.tools import Category, parse_records
from tests.integration.merge_world import World

pytestmark = pytest.mark.integration

NASTY = "\x00\ud800\U0010ffff'\"\\{},;--$1 %s\u202e\u2028"
LONG = NASTY + "x" * 3_000_000
DEEP: object = None
for _ in range(500):
    DEEP = [DEEP, {"a": DEEP}] if DEEP is None else [DEEP]

WEB = "http://app.lab.test:8080/"
RAWS: dict[Category, list[object]] = {
    Category.SUBDOMAINS: [
        {"name": "a" * 63 + "." + "b" * 63 + "." + "c" * 63 + ".lab.test", "records": {"TXT": [LONG, NASTY]}},
        {
            "name": "x.lab.test",
            "records": {"A": [LONG, "1.2.3.4", "::ffff:1.2.3.4"], "AAAA": ["fe80::1%eth0"]},
        },
    ],
    Category.PORTS_SCANNER: [
        {"port": 1, "protocol": "tcp", "address": "::ffff:127.0.0.1", "banner": LONG, "tls": None},
        {"port": 65_535, "protocol": "udp", "address": "2001:DB8::0:1", "banner": NASTY, "tls": True},
    ],
    Category.HTTP_PROBE: [
        {
            "url": WEB,
            "status": 999,
            "title": LONG,
            "server": NASTY,
            "content_type": LONG,
            "headers": {NASTY: LONG, "a" * 5_000: NASTY, "": ""},
            "redirects": [{"url": "x" * 4_000, "status": 301}],
            "technologies": [
                {"name": NASTY[:50], "version": LONG},
                {"name": "\U0001f600" * 100, "version": None},
            ],
            "tls": {"san": [LONG] * 500, "subject_cn": NASTY, "not_before": "0001-01-01T00:00:00+14:00"},
            "response_ms": 2**31 - 1,
            "content_length": 2**63 - 1,
            "extra": DEEP,
        }
    ],
    Category.URL_DISCOVERY: [
        {"url": WEB + "p" * 4_000, "status": 200, "content_type": LONG, "depth": 1_000, "source": "link"},
        {
            "url": WEB + "?q=" + "%00" * 1_200,
            "status": None,
            "content_type": None,
            "depth": 0,
            "source": "form",
        },
        {"url": WEB + "\u202e\ud800", "status": None, "depth": 0, "source": "form"},
    ],
    Category.VULNERABILITIES: [
        {
            "check": "c" * 200,
            "name": NASTY,
            "severity": "critical",
            "url": WEB + "y" * 4_000,
            "description": LONG,
            "evidence": LONG,
            "remediation": NASTY,
            "references": [LONG] * 100,
            "cwe": ["CWE-1"] * 100,
        }
    ],
}


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    world = await World.make(pool)
    await pool.execute("UPDATE assets SET addresses = '{127.7.0.3,127.0.0.1,2001:db8::1}'")
    return world


@pytest.mark.parametrize("category", list(RAWS))
async def test_hostile_values_are_merged_and_announced(world: World, category: Category) -> None:
    parsed = parse_records(category, [*RAWS[category], DEEP, LONG, {NASTY: LONG}])
    job = world.job_of(category, parsed.records, minute=1)

    merged = await world.merge(category, job)

    summary = merged.summaries[job.job_id]
    assert summary.outside == 0
    assert summary.new == len(parsed.records) > 0
    assert parsed.quarantined >= 3
    assert merged.envelopes


@pytest.mark.parametrize("category", list(RAWS))
async def test_hostile_coverage_closes_nothing(world: World, category: Category) -> None:
    await world.merge(category, world.job_of(category, parse_records(category, RAWS[category]).records))
    values = [
        LONG,
        DEEP,
        [LONG] * 50,
        {"a": 1},
        1e308,
        True,
        -1,
        "1-",
        "-",
        "1-99999999999",
        [True],
        ["axfr"],
    ]
    jobs = [
        world.job(category, minute=index + 1, coverage=dict.fromkeys(KEYS, value))
        for index, value in enumerate(values)
    ]

    await world.merge(category, *jobs)

    for table in ("assets", "ports", "asset_services", "urls", "vulnerabilities"):
        assert not await world.rows(f"SELECT FROM {table} WHERE workspace_id = $1 AND missed > 0")


KEYS = ("address", "ports", "protocol", "zone", "method", "scope", "url", "checks")


async def test_thousand_ranges_are_one_scan(world: World) -> None:
    port = {"port": 9, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": None}
    ports = Category.PORTS_SCANNER
    await world.merge(ports, world.job(ports, port))
    looked = {"address": "127.7.0.3", "ports": ",".join(str(n) for n in range(65_535, 0, -2))}

    await world.merge(ports, *(world.job(ports, minute=minute, coverage=looked) for minute in (1, 2)))

    row = await world.row("SELECT closed_at FROM ports WHERE workspace_id = $1")
    assert row["closed_at"] is not None
