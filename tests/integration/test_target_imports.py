"""Import of targets: all of a file or none, every fault at once, twice the same as once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.settings import Settings
from tests.integration.api_world import ApiWorld, assert_problem, open_api, served
from tests.integration.test_cli_api import Terminal

pytestmark = pytest.mark.integration

ROWS = "SELECT value, tags FROM targets ORDER BY value"


@pytest_asyncio.fixture
async def world(settings: Settings, pool: Pool) -> AsyncIterator[ApiWorld]:
    async with open_api(settings.model_copy(update={"temporal_address": "127.0.0.1:1"}), pool) as opened:
        yield opened


async def test_every_wrong_line_is_named_and_nothing_is_added(world: ApiWorld, pool: Pool) -> None:
    text = 'value,tags\nexample.com,shop\n10.0.0.1\n\n-x\nb.example.com,"BAD"\na,b,c\n"open'

    async with world.caller("ours") as ours:
        done = await ours.http.post("/v1/targets/import", json={"format": "csv", "text": text})
        many = await ours.http.post("/v1/targets/import", json={"text": "\n" * 10_001})

    assert done.json()["added"] == 0
    assert [(each["line"], each["code"]) for each in done.json()["faults"]] == [
        (3, "target.address_refused"),
        (5, "target.option"),
        (6, "targets.tags"),
        (7, "targets.line"),
        (8, "targets.line"),
    ]
    assert_problem(many, 422, "targets.too_many")
    assert await pool.fetch(ROWS) == []


async def test_repeated_import_changes_nothing_and_adds_tags(world: ApiWorld, pool: Pool) -> None:
    text = "\n".join(
        (
            '{"value": "EXAMPLE.com.", "tags": ["b"]}',
            '{"value": "example.com", "tags": ["a"]}',
            '{"value": "1.1.1.1"}',
        )
    )

    async with world.caller("ours") as ours, world.caller("theirs") as theirs:
        answers = [await ours.http.post("/v1/targets/import", json={"text": text}) for _ in range(2)]
        more = await ours.http.post(
            "/v1/targets/import", json={"format": "csv", "text": "example.com,c a\n8.8.8.8"}
        )
        tagged = (await ours.http.get("/v1/targets?tag=a&tag=c")).json()["items"]
        listed = (await theirs.http.get("/v1/targets")).json()["items"]

    counts = [
        (each.json()["added"], each.json()["known"], each.json()["tagged"]) for each in (*answers, more)
    ]
    assert counts == [(2, 0, 0), (0, 2, 0), (1, 1, 1)]
    assert [tuple(row) for row in await pool.fetch(ROWS)] == [
        ("1.1.1.1", []),
        ("8.8.8.8", []),
        ("example.com", ["a", "b", "c"]),
    ]
    assert [row["value"] for row in tagged] == ["example.com"]
    assert listed == []
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE type = 'target.created'") == 3


async def test_ten_thousand_lines_from_the_command_line(world: ApiWorld, pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "targets.csv"
    file.write_text("\n".join(f"host-{n}.example.com,big" for n in range(10_000)), encoding="utf-8")
    wrong = tmp_path / "wrong.ndjson"
    wrong.write_text("{}\n[]\n", encoding="utf-8")

    async with world.caller("ours") as ours, served(world.app) as url:
        terminal = Terminal(url, ours.key, tmp_path, world.settings)
        done = await terminal.run("target", "import", str(file), "--json")
        refused = await terminal.run("target", "import", str(wrong))

    assert done.json == {"added": 10_000, "known": 0, "tagged": 0, "faults": []}
    assert refused.code == 5
    assert "wrong.ndjson:2:" in refused.err
    assert await pool.fetchval("SELECT count(*) FROM targets") == 10_000
