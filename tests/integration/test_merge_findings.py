"""Findings become vulnerabilities, and resolve when they are looked for and not found."""

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.tools import Category
from tests.integration.merge_world import World, at, types

pytestmark = pytest.mark.integration

FINDINGS = Category.VULNERABILITIES
ORIGIN = "http://app.lab.test:8080/"
LOOKED = {"url": ORIGIN, "checks": ["exposed-git", "exposed-env"]}
ROW = "SELECT * FROM vulnerabilities WHERE workspace_id = $1"


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool)


def finding(check: str = "exposed-git", url: str = ORIGIN + ".git/HEAD", **fields: object) -> object:
    base = {"check": check, "name": "Exposed .git", "severity": "high", "url": url, "cwe": ["CWE-527"]}
    return base | fields


async def test_finding_is_stored_with_its_place_and_one_event(world: World) -> None:
    web = {"url": ORIGIN, "status": 200}
    await world.merge(Category.HTTP_PROBE, world.job(Category.HTTP_PROBE, web))
    job = world.job(FINDINGS, finding(evidence="ref: refs/heads/main", references=["https://a", 'q"{,']))

    merged = await world.merge(FINDINGS, job)

    row = await world.row(ROW)
    service = await world.row("SELECT id FROM asset_services WHERE workspace_id = $1")
    assert (row["check_id"], row["severity"], row["status"]) == ("exposed-git", "high", "open")
    assert (row["service_id"], row["tool_id"], row["run_id"]) == (service["id"], "webcheck", world.run_id)
    assert (row["cwe"], row["reference_urls"]) == (["CWE-527"], ["https://a", 'q"{,'])
    assert types(merged) == ["vulnerability.detected"]
    assert merged.envelopes[0].subject == f"vulnerability/{row['id']}"
    assert merged.summaries[job.job_id].new == 1


async def test_same_fault_at_another_place_or_asset_is_another_finding(world: World) -> None:
    other = await world.add_asset("app2.lab.test")
    here = world.job(FINDINGS, finding(), finding(url="http://app.lab.test:9090/.git/HEAD"), finding())
    there = world.job(FINDINGS, finding(url="http://app2.lab.test:8080/.git/HEAD"), asset_id=other)

    merged = await world.merge(FINDINGS, here, there)

    assert len(await world.rows(ROW)) == 3
    assert (merged.summaries[here.job_id].new, merged.summaries[here.job_id].updated) == (2, 1)


async def test_finding_about_a_foreign_host_is_left_out(world: World) -> None:
    job = world.job(FINDINGS, finding(url="http://bank.example/.git/HEAD"))

    assert (await world.merge(FINDINGS, job)).summaries[job.job_id].outside == 1
    assert await world.rows(ROW) == []


async def test_secret_in_the_evidence_is_masked(world: World) -> None:
    planted = "AKIA" + "Q" * 16
    await world.merge(FINDINGS, world.job(FINDINGS, finding(evidence=f"KEY={planted} and more")))

    evidence = (await world.row(ROW))["evidence"]
    assert planted not in evidence
    assert evidence.endswith("and more")


async def test_late_result_of_an_earlier_check_changes_no_attribute(world: World) -> None:
    await world.merge(FINDINGS, world.job(FINDINGS, finding(severity="critical"), minute=9))

    await world.merge(FINDINGS, world.job(FINDINGS, finding(severity="low", cwe=[]), minute=1))

    row = await world.row(ROW)
    assert (row["severity"], row["cwe"], row["first_seen"], row["last_seen"]) == (
        "critical",
        ["CWE-527"],
        at(1),
        at(9),
    )


async def test_finding_missed_twice_is_resolved_and_reopens_when_seen(world: World) -> None:
    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=0))
    told: list[list[str]] = []
    for minute in (1, 2):
        merged = await world.merge(FINDINGS, world.job(FINDINGS, minute=minute, coverage=LOOKED))
        told.append(types(merged))
    row = await world.row(ROW)
    assert (row["status"], row["resolved_at"], row["missed"]) == ("resolved", at(2), 2)
    assert told == [[], ["vulnerability.resolved"]]

    back = await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=3))

    assert types(back) == ["vulnerability.reopened"]
    row = await world.row(ROW)
    assert (row["status"], row["resolved_at"], row["missed"]) == ("open", None, 0)


async def test_late_sighting_from_before_the_misses_reopens_nothing(world: World) -> None:
    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=0))
    await world.merge(FINDINGS, *(world.job(FINDINGS, minute=minute, coverage=LOOKED) for minute in (4, 5)))

    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=2))

    row = await world.row(ROW)
    assert (row["status"], row["resolved_at"], row["last_seen"]) == ("resolved", at(5), at(2))


@pytest.mark.parametrize("status", ["accepted", "false_positive"])
async def test_judgement_of_a_person_stays(world: World, status: str) -> None:
    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=0))
    await world.pool.execute("UPDATE vulnerabilities SET status = $1", status)

    await world.merge(
        FINDINGS, *(world.job(FINDINGS, minute=minute, coverage=LOOKED) for minute in (1, 2, 3))
    )
    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=4))

    assert (await world.row(ROW))["status"] == status


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"reachable": False},
        {"tool_id": "other"},
        {"coverage": {"url": ORIGIN, "checks": ["exposed-env"]}},
        {"coverage": {"url": "http://app.lab.test/", "checks": ["exposed-git"]}},
        {"coverage": {"url": ORIGIN}},
    ],
)
async def test_check_that_did_not_look_there_resolves_nothing(
    world: World, changes: dict[str, object]
) -> None:
    await world.merge(FINDINGS, world.job(FINDINGS, finding(), minute=0))

    for minute in (1, 2):
        values = {"minute": minute, "coverage": LOOKED} | changes
        await world.merge(FINDINGS, world.job(FINDINGS, **values))  # type: ignore[arg-type]

    assert (await world.row(ROW))["missed"] == 0
