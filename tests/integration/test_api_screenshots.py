"""Pictures as the API gives them: a list, and each as the PNG that was taken."""

import base64
import json
from pathlib import Path
from uuid import UUID

import pytest

from runlane import names
from runlane.cli.errors import ExitCode
from runlane.db.pool import Pool
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from runlane.tools import Category
from tests.integration.api_world import ApiWorld, assert_problem, served
from tests.integration.merge_world import World, png
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

URL = "http://app.lab.test:8080/"


async def take_picture(inventory: World, settings: Settings) -> Storage:
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    await inventory.merge(Category.PORTS_SCANNER, inventory.job(Category.PORTS_SCANNER, scan))
    picture = {"url": URL, "png": base64.b64encode(png()).decode()}
    job = inventory.job(Category.SCREENSHOT, picture, minute=1)
    pictures = Storage(StorageConfig(**settings.bucket)).of_pictures()
    await pictures.ensure_bucket()
    await pictures.put(names.picture_key(job.workspace_id, job.run_id, job.job_id, 1), png())
    await inventory.merge(Category.SCREENSHOT, job)
    return pictures


async def test_pictures_are_listed_and_given_to_their_workspace_alone(
    world: ApiWorld, pool: Pool, settings: Settings
) -> None:
    inventory = await World.make(pool)
    await take_picture(inventory, settings)

    async with world.caller_of(inventory.workspace_id) as owner, world.caller("others") as stranger:
        (row,) = (await owner.http.get("/v1/screenshots")).json()["items"]
        image = await owner.http.get(f"/v1/screenshots/{row['id']}/image")
        narrowed = [
            len((await owner.http.get(f"/v1/screenshots?{name}={value}")).json()["items"])
            for name, value in (
                ("target", inventory.target_id),
                ("run", inventory.run_id),
                ("asset", inventory.asset_id),
                ("run", UUID(int=7)),
            )
        ]
        theirs = (await stranger.http.get("/v1/screenshots")).json()["items"]
        refused = await stranger.http.get(f"/v1/screenshots/{row['id']}/image")

    assert (row["url"], row["host"], row["width"], row["size_bytes"]) == (
        URL,
        "app.lab.test",
        1280,
        len(png()),
    )
    assert (image.content, image.headers["content-type"]) == (png(), "image/png")
    assert image.headers["x-content-type-options"] == "nosniff"
    assert (narrowed, theirs) == ([1, 1, 1, 0], [])
    assert_problem(refused, 404, "screenshot.not_found")


async def test_picture_is_saved_to_a_new_file(
    world: ApiWorld, pool: Pool, settings: Settings, tmp_path: Path
) -> None:
    inventory = await World.make(pool)
    await take_picture(inventory, settings)
    async with world.caller_of(inventory.workspace_id) as owner, served(world.app) as url:
        terminal = Terminal(url, owner.key, tmp_path, settings)
        listed = await terminal.run("screenshot", "list", "--json")
        (row,) = json.loads(listed.out)["items"]

        saved = await terminal.run("screenshot", "save", row["id"], "page.png")
        again = await terminal.run("screenshot", "save", row["id"], "page.png")

    assert (saved.code, again.code) == (0, ExitCode.USAGE), saved.err
    assert (tmp_path / "page.png").read_bytes() == png()


async def test_picture_that_is_not_the_one_that_was_merged_is_not_given(
    world: ApiWorld, pool: Pool, settings: Settings
) -> None:
    inventory = await World.make(pool)
    pictures = await take_picture(inventory, settings)
    row = await inventory.row("SELECT id, object_key FROM screenshots WHERE workspace_id = $1")
    await pictures.put(row["object_key"], png(b"else"))

    async with world.caller_of(inventory.workspace_id) as owner:
        answer = await owner.http.get(f"/v1/screenshots/{row['id']}/image")

    assert_problem(answer, 409, "screenshot.unreadable")
