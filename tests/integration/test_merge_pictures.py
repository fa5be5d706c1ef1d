"""Pictures of web services: a row for each job, and the object that it refers to."""

import pytest
import pytest_asyncio

from runlane import names
from runlane.db.pool import Pool
from runlane.tools import Category
from tests.integration.merge_world import World, at, picture, png

pytestmark = pytest.mark.integration

PICTURE, PORTS = Category.SCREENSHOT, Category.PORTS_SCANNER
URL = "http://app.lab.test:8080/"
ROW = "SELECT * FROM screenshots WHERE workspace_id = $1"


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    world = await World.make(pool)
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    await world.merge(PORTS, world.job(PORTS, scan))
    return world


async def test_picture_is_a_row_of_its_service_and_run(world: World) -> None:
    job = world.job(PICTURE, picture(URL), minute=1)

    merged = await world.merge(PICTURE, job)
    again = await world.merge(PICTURE, job)

    assert merged.summaries[job.job_id].new == 1
    assert [each.type for each in merged.envelopes] == ["asset.screenshot.captured"]
    assert again.envelopes == []
    row = await world.row(ROW)
    service = await world.row("SELECT id FROM asset_services WHERE workspace_id = $1")
    assert (row["service_id"], row["run_id"], row["job_id"]) == (service["id"], world.run_id, job.job_id)
    assert merged.envelopes[0].data["service_id"] == str(service["id"])
    assert (row["url"], row["width"], row["height"], row["size_bytes"]) == (URL, 1280, 800, len(png()))
    assert row["object_key"] == names.picture_key(world.workspace_id, world.run_id, job.job_id, 1)
    assert row["observed_at"] == at(1)


async def test_picture_of_another_host_or_an_unknown_port_is_left_out(world: World) -> None:
    job = world.job(PICTURE, picture("http://else.test:8080/"), picture("http://app.lab.test:81/"))

    merged = await world.merge(PICTURE, job)

    assert merged.summaries[job.job_id].outside == 2
    assert await world.rows(ROW) == []


async def test_only_the_first_picture_of_a_job_counts(world: World) -> None:
    job = world.job(PICTURE, picture(URL), picture(URL, b"x"))

    merged = await world.merge(PICTURE, job)

    assert (merged.summaries[job.job_id].new, merged.summaries[job.job_id].outside) == (1, 1)
    assert (await world.row(ROW))["size_bytes"] == len(png())


async def test_picture_goes_with_its_run(world: World) -> None:
    await world.merge(PICTURE, world.job(PICTURE, picture(URL)))

    await world.pool.execute("DELETE FROM job_histories WHERE id = $1", world.run_id)

    assert await world.rows(ROW) == []
    assert len(await world.rows("SELECT id FROM asset_services WHERE workspace_id = $1")) == 1


async def test_late_picture_does_not_replace_a_newer_one(world: World) -> None:
    newer = world.job(PICTURE, picture(URL, b"newer"), minute=5)
    older = world.job(PICTURE, picture(URL), minute=1, job_id=newer.job_id)

    await world.merge(PICTURE, newer)
    await world.merge(PICTURE, older)

    assert (await world.row(ROW))["size_bytes"] == len(png(b"newer"))
