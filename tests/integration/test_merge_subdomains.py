"""Names found under a domain become assets."""

from datetime import datetime
from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db.inventory import ensure_primary_assets
from runlane.db.pool import Pool, Record, open_pool
from runlane.tools import Category
from tests.conftest import Database
from tests.integration.merge_world import START, World, at, types

pytestmark = pytest.mark.integration

NAMES = Category.SUBDOMAINS
ZONE = {"zone": "lab.test", "method": ["axfr", "wordlist"]}
ASSET = "SELECT * FROM assets WHERE workspace_id = $1 AND value = $2"


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool, host="old.lab.test")


def name(value: str, *addresses: str) -> dict[str, object]:
    return {"name": value, "records": {"A": list(addresses)}}


async def test_new_names_become_assets_with_one_event_each(world: World) -> None:
    job = world.job(NAMES, name("a.lab.test", "127.7.0.9"), name("b.lab.test"), minute=1)

    merged = await world.merge(NAMES, job)

    summary = merged.summaries[job.job_id]
    assert (summary.records, summary.new, summary.updated, summary.outside) == (2, 2, 0, 0)
    row = await world.row(ASSET, "a.lab.test")
    assert (row["first_seen"], row["last_seen"], row["run_id"]) == (at(1), at(1), world.run_id)
    assert [str(each) for each in row["addresses"]] == ["127.7.0.9"]
    assert row["records"] == {"A": ["127.7.0.9"]}
    assert types(merged) == ["asset.discovered"] * 3  # and the target's own name
    event = next(each for each in merged.envelopes if each.data["value"] == "a.lab.test")
    assert event.subject == f"asset/{row['id']}"
    assert event.data["run_id"] == str(world.run_id)


async def test_repeated_merge_moves_last_seen_and_is_no_event(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, name("a.lab.test"), minute=1))
    again = world.job(NAMES, name("a.lab.test"), minute=5)

    merged = await world.merge(NAMES, again)

    assert merged.envelopes == []
    assert (merged.summaries[again.job_id].new, merged.summaries[again.job_id].updated) == (0, 1)
    row = await world.row(ASSET, "a.lab.test")
    assert (row["first_seen"], row["last_seen"]) == (at(1), at(5))


async def test_one_name_of_two_jobs_counts_for_the_earlier(world: World) -> None:
    late = world.job(NAMES, name("a.lab.test", "127.7.0.2"), minute=2)
    early = world.job(NAMES, name("a.lab.test", "127.7.0.1"), minute=1, run_id=await world.add_run())

    merged = await world.merge(NAMES, late, early)

    assert (merged.summaries[early.job_id].new, merged.summaries[late.job_id].new) == (1, 0)
    row = await world.row(ASSET, "a.lab.test")
    assert row["run_id"] == early.run_id
    assert [str(each) for each in row["addresses"]] == ["127.7.0.2"]
    assert (row["first_seen"], row["last_seen"]) == (at(1), at(2))


async def test_name_outside_the_domain_is_left_out(world: World) -> None:
    job = world.job(NAMES, name("evil.example"), name("notlab.test"), name("in.lab.test"))

    merged = await world.merge(NAMES, job)

    assert (merged.summaries[job.job_id].new, merged.summaries[job.job_id].outside) == (1, 2)
    values = {row["value"] for row in await world.rows("SELECT value FROM assets WHERE workspace_id = $1")}
    assert values == {"old.lab.test", "in.lab.test", "lab.test"}


async def test_job_of_a_deleted_target_merges_nothing(world: World) -> None:
    gone = world.job(NAMES, name("a.lab.test"), target_id=UUID(int=5))
    unknown = world.job(NAMES, name("a.lab.test"), target_id=None)

    merged = await world.merge(NAMES, gone, unknown)

    assert {each.outside for each in merged.summaries.values()} == {1}
    assert merged.envelopes == []


async def test_target_of_another_workspace_is_not_touched(world: World, pool: Pool) -> None:
    other = await World.make(pool, host="other.lab.test")
    job = world.job(NAMES, name("a.lab.test"), target_id=other.target_id)

    merged = await world.merge(NAMES, job)

    assert merged.summaries[job.job_id].outside == 1
    assert len(await other.rows("SELECT FROM assets WHERE workspace_id = $1")) == 1


async def test_unlisted_own_name_is_the_primary_asset(world: World) -> None:
    merged = await world.merge(NAMES, world.job(NAMES))

    assert (await world.row(ASSET, "lab.test"))["is_primary"]
    assert types(merged) == ["asset.discovered"]


async def test_listed_own_name_is_the_primary_asset(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, name("lab.test", "127.7.0.1"), name("a.lab.test")))

    primary = await world.rows("SELECT value FROM assets WHERE workspace_id = $1 AND is_primary")
    assert [row["value"] for row in primary] == ["lab.test"]


async def test_records_of_the_own_name_stay_when_a_scan_does_not_list_it(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, name("lab.test", "127.7.0.1"), minute=1))

    await world.merge(NAMES, world.job(NAMES, name("a.lab.test"), minute=2))

    assert (await world.row(ASSET, "lab.test"))["records"] == {"A": ["127.7.0.1"]}


async def test_address_that_is_none_stays_a_record_only(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, name("a.lab.test", "127.7.0.1", "}, {junk", "300.1.1.1")))

    row = await world.row(ASSET, "a.lab.test")
    assert [str(each) for each in row["addresses"]] == ["127.7.0.1"]
    assert row["records"]["A"] == ["127.7.0.1", "300.1.1.1", "}, {junk"]


async def test_late_result_of_an_earlier_scan_changes_no_attribute(world: World) -> None:
    first_run, second_run = await world.add_run(), await world.add_run()
    await world.merge(NAMES, world.job(NAMES, name("a.lab.test", "127.7.0.2"), minute=9, run_id=second_run))

    await world.merge(NAMES, world.job(NAMES, name("a.lab.test", "127.7.0.1"), minute=3, run_id=first_run))

    row = await world.row(ASSET, "a.lab.test")
    assert [str(each) for each in row["addresses"]] == ["127.7.0.2"]
    assert (row["first_seen"], row["last_seen"], row["run_id"]) == (at(3), at(9), first_run)


async def test_name_missed_twice_by_a_zone_listing_is_gone(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, minute=1, coverage=ZONE))
    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"]) == (1, None)

    await world.merge(NAMES, world.job(NAMES, minute=2, coverage=ZONE))

    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"], row["last_seen"]) == (2, at(2), START)


async def test_name_seen_in_between_is_not_gone(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, minute=1, coverage=ZONE))
    await world.merge(NAMES, world.job(NAMES, name("old.lab.test"), minute=2, coverage=ZONE))
    await world.merge(NAMES, world.job(NAMES, minute=3, coverage=ZONE))

    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"]) == (1, None)


async def test_two_listings_in_one_merge_are_two_misses(world: World) -> None:
    jobs = [world.job(NAMES, minute=minute, coverage=ZONE) for minute in (1, 2)]

    await world.merge(NAMES, *jobs)

    assert (await world.row(ASSET, "old.lab.test"))["gone_at"] == at(2)


async def test_gone_name_seen_again_is_back(world: World) -> None:
    gone = await world.merge(NAMES, *(world.job(NAMES, minute=minute, coverage=ZONE) for minute in (1, 2)))

    merged = await world.merge(NAMES, world.job(NAMES, name("old.lab.test"), minute=3))

    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"]) == (0, None)
    assert types(gone) == ["asset.disappeared", "asset.discovered"]  # and the target's own name
    assert types(merged) == ["asset.updated"]


async def test_late_sighting_from_before_the_misses_brings_nothing_back(world: World) -> None:
    await world.merge(NAMES, *(world.job(NAMES, minute=minute, coverage=ZONE) for minute in (5, 6)))

    await world.merge(NAMES, world.job(NAMES, name("old.lab.test"), minute=3))

    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"], row["last_seen"]) == (2, at(6), at(3))


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"reachable": False},
        {"coverage": {"zone": "lab.test", "method": ["wordlist"]}},
        {"coverage": {"zone": "other.lab.test", "method": ["axfr"]}},
        {"coverage": {}},
    ],
)
async def test_result_that_did_not_look_everywhere_closes_nothing(
    world: World, changes: dict[str, object]
) -> None:
    for minute in (1, 2, 3):
        await world.merge(NAMES, world.job(NAMES, **({"minute": minute, "coverage": ZONE} | changes)))  # type: ignore[arg-type]

    row = await world.row(ASSET, "old.lab.test")
    assert (row["missed"], row["gone_at"]) == (0, None)


async def test_primary_asset_is_never_gone(world: World) -> None:
    await world.merge(NAMES, world.job(NAMES, name("lab.test"), minute=0))

    await world.merge(NAMES, *(world.job(NAMES, minute=minute, coverage=ZONE) for minute in (1, 2, 3)))

    row = await world.row(ASSET, "lab.test")
    assert (row["last_seen"], row["missed"], row["gone_at"]) == (at(0), 0, None)


async def primaries(world: World, target_id: UUID) -> list[Record]:
    return await world.rows(
        "SELECT * FROM assets WHERE workspace_id = $1 AND target_id = $2 ORDER BY addresses", target_id
    )


async def test_address_target_is_its_own_primary_asset(world: World) -> None:
    target_id = await world.add_target("ip", "2001:db8::7")
    async with world.pool.acquire() as conn, conn.transaction():
        events = await ensure_primary_assets(
            conn, world.workspace_id, [target_id, world.target_id], run_id=world.run_id
        )
        again = await ensure_primary_assets(conn, world.workspace_id, [target_id], run_id=world.run_id)

    (row,) = await primaries(world, target_id)
    assert (row["value"], row["is_primary"], row["run_id"]) == ("2001:db8::7", True, world.run_id)
    assert [str(each) for each in row["addresses"]] == ["2001:db8::7"]
    assert isinstance(row["first_seen"], datetime)
    assert [each.type for each in events] == ["asset.discovered"] * 2
    assert again == []


async def test_network_target_has_one_asset_for_each_address(world: World) -> None:
    v4, v6 = await world.add_target("cidr", "127.9.0.0/29"), await world.add_target("cidr", "fd00::/126")
    async with world.pool.acquire() as conn, conn.transaction():
        assert await ensure_primary_assets(conn, world.workspace_id, [v4, v6]) == []

    assert [row["value"] for row in await primaries(world, v4)] == [f"127.9.0.{n}" for n in range(8)]
    assert [row["value"] for row in await primaries(world, v6)] == ["fd00::", "fd00::1", "fd00::2", "fd00::3"]
    assert not any(row["is_primary"] for row in await primaries(world, v4))


async def test_primary_asset_is_made_under_row_security(world: World, database: Database) -> None:
    api = await open_pool(database.api, size=1)
    async with api.acquire() as conn, conn.transaction():
        await conn.execute("SELECT set_config('runlane.workspace', $1, true)", str(world.workspace_id))
        events = await ensure_primary_assets(conn, world.workspace_id, [world.target_id], run_id=world.run_id)
    await api.close()

    assert len(events) == 1
