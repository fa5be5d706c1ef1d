"""Assets at IPv6 addresses are merged like the others: ports, services, answers and URLs."""

import pytest

from runlane.db.pool import Pool
from runlane.tools import Category
from tests.integration.merge_world import World

pytestmark = pytest.mark.integration

ADDRESS = "2001:db8::7"
ORIGIN = f"http://[{ADDRESS}]:8080/"
OPEN = {"port": 8080, "protocol": "tcp", "address": "2001:DB8:0:0::7", "banner": None, "tls": False}
COVERAGE = {"ports": "1-9000", "address": "2001:db8:0::7", "protocol": "tcp"}


async def world_of(pool: Pool) -> World:
    world = await World.make(pool, host="other.lab.test")
    world.asset_id = await world.add_asset(ADDRESS, ADDRESS)
    return world


async def test_port_of_an_ipv6_address_is_one_port_in_every_spelling(pool: Pool) -> None:
    world = await world_of(pool)
    ports = Category.PORTS_SCANNER

    await world.merge(ports, world.job(ports, OPEN))
    await world.merge(ports, world.job(ports, OPEN | {"address": ADDRESS}, minute=1))

    row = await world.row("SELECT host(address) AS address, port FROM ports WHERE workspace_id = $1")
    assert (row["address"], row["port"]) == (ADDRESS, 8080)


async def test_port_of_an_ipv6_address_is_closed_after_two_misses(pool: Pool) -> None:
    world = await world_of(pool)
    ports = Category.PORTS_SCANNER
    await world.merge(ports, world.job(ports, OPEN, coverage=COVERAGE))

    for minute in (1, 2):
        await world.merge(ports, world.job(ports, minute=minute, coverage=COVERAGE))

    assert (await world.row("SELECT closed_at FROM ports WHERE workspace_id = $1"))["closed_at"]


async def test_answers_and_urls_of_an_ipv6_literal_belong_to_their_asset(pool: Pool) -> None:
    world = await world_of(pool)
    web, urls = Category.HTTP_PROBE, Category.URL_DISCOVERY
    await world.merge(web, world.job(web, {"url": ORIGIN, "status": 200}))

    found = {"url": "http://[2001:DB8::0:7]:8080/x", "status": 200, "depth": 1, "source": "link"}
    merged = await world.merge(urls, world.job(urls, found, minute=1))

    assert sum(each.outside for each in merged.summaries.values()) == 0
    service = await world.row("SELECT id, url FROM asset_services WHERE workspace_id = $1")
    row = await world.row("SELECT url, service_id FROM urls WHERE workspace_id = $1")
    assert (service["url"], row["url"], row["service_id"]) == (ORIGIN, f"{ORIGIN}x", service["id"])
