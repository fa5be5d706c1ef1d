"""Port scans become ports, services and observations."""

from uuid import UUID

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.tools import Category
from tests.integration.merge_world import World, at, types

pytestmark = pytest.mark.integration

PORTS = Category.PORTS_SCANNER
HERE, ELSEWHERE, FOREIGN = "127.7.0.3", "127.7.0.4", "198.51.100.9"
LEADS_TO = "UPDATE assets SET addresses = $2::text[]::inet[] WHERE id = $1"
PORT = "SELECT * FROM ports WHERE workspace_id = $1 AND port = $2 AND address = $3::text::inet"
SERVICE = "SELECT * FROM asset_services WHERE workspace_id = $1 AND port = $2"
FULL = {"address": HERE, "ports": "1-65535"}


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool)


def port(number: int, address: str = HERE, banner: str | None = None, protocol: str = "tcp") -> object:
    return {"port": number, "protocol": protocol, "address": address, "banner": banner, "tls": False}


async def test_open_port_is_port_service_observation_and_two_events(world: World) -> None:
    job = world.job(PORTS, port(22, banner="SSH-2.0-x"), minute=1)

    merged = await world.merge(PORTS, job)

    assert merged.summaries[job.job_id].new == 1
    assert types(merged) == ["asset.port.opened", "asset.service.discovered"]
    service = await world.row(SERVICE, 22)
    assert (service["banner"], service["is_tls"], str(service["address"])) == ("SSH-2.0-x", False, HERE)
    assert (await world.row(PORT, 22, HERE))["run_id"] == world.run_id
    seen = await world.row("SELECT * FROM port_observations WHERE workspace_id = $1")
    assert (seen["ports"], seen["is_complete"], seen["job_id"]) == ([22], True, job.job_id)
    discovered = next(each for each in merged.envelopes if each.type == "asset.service.discovered")
    assert discovered.subject == f"service/{service['id']}"
    assert discovered.data["value"] == "app.lab.test"


async def test_ports_of_one_asset_and_run_have_different_event_ids(world: World) -> None:
    merged = await world.merge(PORTS, world.job(PORTS, *(port(number) for number in range(1, 50))))

    ids = [each.id for each in merged.envelopes]
    assert len(ids) == len(set(ids)) == 98


async def test_port_at_two_addresses_is_two_ports_and_one_service(world: World) -> None:
    await world.pool.execute(LEADS_TO, world.asset_id, [HERE, ELSEWHERE])
    job = world.job(PORTS, port(443), port(443, ELSEWHERE, banner="x"), port(443, protocol="udp"))

    merged = await world.merge(PORTS, job)

    assert merged.summaries[job.job_id].new == 3
    assert len(await world.rows("SELECT FROM ports WHERE workspace_id = $1")) == 3
    services = await world.rows("SELECT * FROM asset_services WHERE workspace_id = $1 ORDER BY protocol")
    assert [(row["protocol"], row["banner"]) for row in services] == [("tcp", "x"), ("udp", None)]


async def test_port_at_somebody_elses_address_makes_no_service(world: World) -> None:
    job = world.job(PORTS, port(443, FOREIGN), port(22), port(23, "::ffff:127.7.0.4"))

    merged = await world.merge(PORTS, job)

    summary = merged.summaries[job.job_id]
    assert (summary.records, summary.new, summary.outside) == (3, 1, 2)
    assert [row["port"] for row in await world.rows("SELECT port FROM ports WHERE workspace_id = $1")] == [22]
    assert (await world.row("SELECT port FROM asset_services WHERE workspace_id = $1"))["port"] == 22
    assert (await world.row("SELECT ports FROM port_observations WHERE workspace_id = $1"))["ports"] == [22]


async def test_port_at_the_address_that_the_job_was_given_counts_though_the_name_has_moved(
    world: World,
) -> None:
    job = world.job(PORTS, port(443), port(22, FOREIGN))
    await world.pool.execute(
        """WITH step AS (
             INSERT INTO run_steps (workspace_id, run_id, step_id, position, name, tool_id)
             VALUES ($1, $2, 'ports', 0, 'ports', 'portprobe')
             RETURNING workspace_id, run_id, step_id
           )
           INSERT INTO jobs (id, workspace_id, run_id, step_id, tool_id, toolset, category, subject_id, spec)
           SELECT $3, workspace_id, run_id, step_id, 'portprobe', 'probe', 'ports_scanner', $4, $5
           FROM step""",
        world.workspace_id,
        world.run_id,
        job.job_id,
        world.asset_id,
        {"host": "app.lab.test", "address": HERE},
    )
    await world.pool.execute(LEADS_TO, world.asset_id, [ELSEWHERE])

    merged = await world.merge(PORTS, job)

    assert merged.summaries[job.job_id].outside == 1
    assert str((await world.row(SERVICE, 443))["address"]) == HERE


async def test_ports_of_a_name_that_nobody_has_resolved_lead_later_jobs_nowhere(world: World) -> None:
    await world.pool.execute(LEADS_TO, world.asset_id, [])

    merged = await world.merge(PORTS, world.job(PORTS, port(443, FOREIGN)))

    assert types(merged) == ["asset.port.opened", "asset.service.discovered"]
    assert (await world.row(PORT, 443, FOREIGN))["port"] == 443
    assert (await world.row(SERVICE, 443))["address"] is None


async def test_scan_of_somebody_elses_address_closes_nothing_that_the_asset_had(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443), minute=0))
    await world.pool.execute(LEADS_TO, world.asset_id, [ELSEWHERE])

    looked = {"address": FOREIGN, "ports": "443"}
    await world.merge(PORTS, *(world.job(PORTS, minute=minute, coverage=looked) for minute in (1, 2)))

    assert (await world.row(PORT, 443, HERE))["missed"] == 0


async def test_empty_result_is_an_observation(world: World) -> None:
    merged = await world.merge(PORTS, world.job(PORTS, complete=False))

    assert merged.envelopes == []
    seen = await world.row("SELECT * FROM port_observations WHERE workspace_id = $1")
    assert (seen["ports"], seen["is_complete"]) == ([], False)


async def test_slow_scan_merged_after_a_newer_one_closes_nothing(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443, banner="new"), minute=30, coverage=FULL))

    for _ in range(3):
        await world.merge(PORTS, world.job(PORTS, port(22), minute=0, coverage=FULL))

    for table_row in (await world.row(PORT, 443, HERE), await world.row(SERVICE, 443)):
        assert (table_row["missed"], table_row["closed_at"], table_row["last_seen"]) == (0, None, at(30))


async def test_slow_scan_merged_after_a_newer_one_changes_no_attribute(world: World) -> None:
    await world.pool.execute(LEADS_TO, world.asset_id, [HERE, ELSEWHERE])
    await world.merge(PORTS, world.job(PORTS, port(443, banner="new"), minute=30))

    await world.merge(PORTS, world.job(PORTS, port(443, ELSEWHERE, banner="old"), minute=0))

    service = await world.row(SERVICE, 443)
    assert (service["banner"], str(service["address"])) == ("new", HERE)
    assert (service["first_seen"], service["last_seen"]) == (at(0), at(30))


async def test_port_missed_twice_is_closed_with_its_service(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443), port(22), minute=0))

    for minute in (1, 2):
        await world.merge(PORTS, world.job(PORTS, port(22), minute=minute, coverage=FULL))

    for closed in (await world.row(PORT, 443, HERE), await world.row(SERVICE, 443)):
        assert (closed["missed"], closed["closed_at"]) == (2, at(2))
    for opened in (await world.row(PORT, 22, HERE), await world.row(SERVICE, 22)):
        assert (opened["missed"], opened["closed_at"]) == (0, None)


async def test_closed_port_seen_again_is_open(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443), minute=0))
    gone = await world.merge(PORTS, *(world.job(PORTS, minute=minute, coverage=FULL) for minute in (1, 2)))

    merged = await world.merge(PORTS, world.job(PORTS, port(443), minute=3))

    for opened in (await world.row(PORT, 443, HERE), await world.row(SERVICE, 443)):
        assert (opened["missed"], opened["closed_at"]) == (0, None)
    assert types(gone) == ["asset.port.closed", "asset.service.closed"]
    assert types(merged) == ["asset.port.opened", "asset.service.discovered"]
    assert [each.new for each in merged.summaries.values()] == [0]


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"reachable": False},
        {"coverage": {"address": HERE, "ports": "1-442,444-65535"}},
        {"coverage": {"address": HERE, "ports": [22, 80]}},
        {"coverage": {"address": "127.7.0.99", "ports": "1-65535"}},
        {"coverage": {"address": HERE, "ports": "1-65535", "protocol": "udp"}},
        {"coverage": {"address": HERE, "ports": "all"}},
        {"coverage": {"ports": "1-65535"}},
    ],
)
async def test_scan_that_did_not_look_there_closes_nothing(world: World, changes: dict[str, object]) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443), minute=0))

    for minute in (1, 2, 3):
        values = {"minute": minute, "coverage": FULL} | changes
        await world.merge(PORTS, world.job(PORTS, port(22), **values))  # type: ignore[arg-type]

    assert (await world.row(PORT, 443, HERE))["missed"] == 0
    assert (await world.row(SERVICE, 443))["missed"] == 0


async def test_scan_of_the_new_address_closes_ports_of_the_one_the_asset_lost(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(443), minute=0))
    await world.pool.execute(LEADS_TO, world.asset_id, [ELSEWHERE])

    looked = {"address": ELSEWHERE, "ports": "443"}
    await world.merge(PORTS, *(world.job(PORTS, minute=minute, coverage=looked) for minute in (1, 2)))

    assert (await world.row(PORT, 443, HERE))["closed_at"] == at(2)
    assert (await world.row(SERVICE, 443))["closed_at"] == at(2)


async def test_scan_of_one_of_two_addresses_leaves_the_other_open(world: World) -> None:
    await world.pool.execute(LEADS_TO, world.asset_id, [HERE, ELSEWHERE])
    await world.merge(PORTS, world.job(PORTS, port(443, ELSEWHERE), minute=0))

    await world.merge(PORTS, *(world.job(PORTS, minute=minute, coverage=FULL) for minute in (1, 2)))

    assert (await world.row(PORT, 443, ELSEWHERE))["closed_at"] is None
    assert (await world.row(SERVICE, 443))["closed_at"] is None


async def test_job_of_a_deleted_asset_merges_nothing(world: World) -> None:
    gone = world.job(PORTS, port(22), asset_id=UUID(int=5))
    unknown = world.job(PORTS, port(22), asset_id=None)

    merged = await world.merge(PORTS, gone, unknown)

    assert {each.outside for each in merged.summaries.values()} == {1}
    assert await world.rows("SELECT FROM port_observations WHERE workspace_id = $1") == []


async def test_asset_of_another_workspace_is_not_touched(world: World, pool: Pool) -> None:
    other = await World.make(pool)
    await other.merge(PORTS, other.job(PORTS, port(443), minute=0))

    for minute in (1, 2):
        stranger = world.job(PORTS, port(22), minute=minute, coverage=FULL, asset_id=other.asset_id)
        assert (await world.merge(PORTS, stranger)).summaries[stranger.job_id].outside == 1

    assert [row["port"] for row in await other.rows("SELECT port FROM ports WHERE workspace_id = $1")] == [
        443
    ]
    assert (await other.row(PORT, 443, HERE))["missed"] == 0


async def test_jobs_of_several_workspaces_merge_in_one_call(world: World, pool: Pool) -> None:
    other = await World.make(pool)
    mine, theirs = world.job(PORTS, port(22)), other.job(PORTS, port(23), job_id=UUID(int=99))

    merged = await world.merge(PORTS, mine, theirs)

    assert {each.workspace_id for each in merged.envelopes} == {world.workspace_id, other.workspace_id}
    assert [row["port"] for row in await world.rows("SELECT port FROM ports WHERE workspace_id = $1")] == [22]
    assert [row["port"] for row in await other.rows("SELECT port FROM ports WHERE workspace_id = $1")] == [23]


async def test_run_that_is_deleted_takes_observations_and_leaves_ports(world: World) -> None:
    await world.merge(PORTS, world.job(PORTS, port(22)))

    await world.pool.execute("DELETE FROM job_histories WHERE id = $1", world.run_id)

    assert (await world.row(PORT, 22, HERE))["run_id"] is None
    assert await world.rows("SELECT FROM port_observations WHERE workspace_id = $1") == []
