"""Web answers become the web half of services, technologies and responses; crawls become URLs."""

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.tools import Category
from tests.integration.merge_world import World, at, types

pytestmark = pytest.mark.integration

WEB, URLS, PORTS = Category.HTTP_PROBE, Category.URL_DISCOVERY, Category.PORTS_SCANNER
ORIGIN = "http://app.lab.test:8080/"
SCOPE = {"scope": ORIGIN}
SERVICE = "SELECT * FROM asset_services WHERE workspace_id = $1 AND port = 8080"
URL = "SELECT * FROM urls WHERE workspace_id = $1 AND url = $2"
TLS = {
    "version": "TLSv1.3",
    "san": ["app.lab.test"],
    "not_after": "2027-01-01T00:00:00+00:00",
    "sha256": "ab" * 32,
    "self_signed": True,
}


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool)


def answer(url: str = ORIGIN, **fields: object) -> object:
    return {"url": url, "status": 200, "title": "Home"} | fields


def link(path: str, status: int | None = 200, base: str = ORIGIN, **fields: object) -> object:
    return {"url": base + path, "status": status, "depth": 1, "source": "link"} | fields


async def test_answer_fills_the_service_that_the_port_scan_found(world: World) -> None:
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    await world.merge(PORTS, world.job(PORTS, scan, minute=0))
    job = world.job(WEB, answer(server="nginx", technologies=[{"name": "nginx", "version": "1.2"}]), minute=1)

    merged = await world.merge(WEB, job)

    assert merged.summaries[job.job_id].new == 1
    assert types(merged) == ["asset.technology.detected"]
    row = await world.row(SERVICE)
    assert (row["scheme"], row["url"], row["status"], row["title"]) == ("http", ORIGIN, 200, "Home")
    assert (row["server"], row["tls"], row["web_seen_at"]) == ("nginx", None, at(1))
    assert (row["first_seen"], row["last_seen"]) == (at(0), at(1))


async def test_answer_of_an_unknown_port_is_a_new_service(world: World) -> None:
    merged = await world.merge(WEB, world.job(WEB, answer()))

    assert types(merged) == ["asset.service.discovered"]


async def test_second_answer_is_not_new(world: World) -> None:
    await world.merge(WEB, world.job(WEB, answer(), minute=1))
    job = world.job(WEB, answer(title="Other"), minute=2)

    merged = await world.merge(WEB, job)

    assert (merged.summaries[job.job_id].new, merged.envelopes) == (0, [])
    assert (await world.row(SERVICE))["title"] == "Other"


async def test_late_answer_of_an_earlier_probe_changes_no_attribute(world: World) -> None:
    nginx = [{"name": "nginx", "version": "2"}]
    await world.merge(WEB, world.job(WEB, answer(title="new", technologies=nginx), minute=9))

    older = answer(title="old", technologies=[{"name": "nginx", "version": "1"}])
    await world.merge(WEB, world.job(WEB, older, minute=1))

    row = await world.row(SERVICE)
    assert (row["title"], row["web_seen_at"], row["last_seen"]) == ("new", at(9), at(9))
    technology = await world.row("SELECT * FROM technologies WHERE workspace_id = $1")
    assert (technology["version"], technology["first_seen"], technology["last_seen"]) == ("2", at(1), at(9))


async def test_first_answer_counts_though_a_newer_port_scan_was_merged(world: World) -> None:
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    await world.merge(PORTS, world.job(PORTS, scan, minute=9))

    await world.merge(WEB, world.job(WEB, answer(), minute=1))

    row = await world.row(SERVICE)
    assert (row["title"], row["web_seen_at"], row["last_seen"]) == ("Home", at(1), at(9))


async def test_whole_answer_is_kept_with_the_run(world: World) -> None:
    redirects = [{"url": "http://app.lab.test:8080/a", "status": 302}]
    raw = answer("https://app.lab.test:8080/", tls=TLS, headers={"X-A": "b"}, redirects=redirects)
    job = world.job(WEB, raw)

    await world.merge(WEB, job)

    row = await world.row("SELECT * FROM http_responses WHERE workspace_id = $1")
    assert (row["job_id"], row["run_id"], row["status"]) == (job.job_id, world.run_id, 200)
    assert row["response"]["headers"] == {"x-a": "b"}
    assert row["response"]["redirects"] == redirects
    assert row["response"]["tls"]["sha256"] == "ab" * 32
    assert (await world.row(SERVICE))["tls"]["not_after"] == "2027-01-01T00:00:00+00:00"


async def test_two_jobs_and_two_schemes_on_one_port_are_one_service(world: World) -> None:
    plain, both = (
        world.job(WEB, answer(status=400)),
        world.job(WEB, answer(status=400), answer("https://app.lab.test:8080/"), minute=1),
    )

    merged = await world.merge(WEB, both, plain)

    assert merged.summaries[plain.job_id].new == 1
    assert merged.summaries[both.job_id].new == 0
    assert (await world.row(SERVICE))["scheme"] == "https"
    assert len(await world.rows("SELECT FROM http_responses WHERE workspace_id = $1")) == 2


async def test_answer_of_a_foreign_host_is_left_out(world: World) -> None:
    job = world.job(WEB, answer("http://evil.example/"), answer("http://127.7.0.3:8080/"))

    merged = await world.merge(WEB, job)

    assert (merged.summaries[job.job_id].outside, merged.summaries[job.job_id].new) == (1, 1)
    assert len(await world.rows("SELECT FROM asset_services WHERE workspace_id = $1")) == 1


async def test_service_that_answers_again_is_open_again(world: World) -> None:
    scan = {"port": 8080, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": False}
    looked = {"address": "127.7.0.3", "ports": "8080"}
    await world.merge(PORTS, world.job(PORTS, scan, minute=0))
    await world.merge(PORTS, *(world.job(PORTS, minute=minute, coverage=looked) for minute in (1, 2)))

    merged = await world.merge(WEB, world.job(WEB, answer(), minute=3))

    assert "asset.service.discovered" in types(merged)
    row = await world.row(SERVICE)
    assert (row["missed"], row["closed_at"], row["last_seen"]) == (0, None, at(3))


async def test_new_urls_belong_to_the_service_of_their_port(world: World) -> None:
    await world.merge(WEB, world.job(WEB, answer()))
    other = "http://app.lab.test:9090/"
    job = world.job(URLS, link(""), link("a"), link("b", base=other), minute=1)

    merged = await world.merge(URLS, job)

    assert (merged.summaries[job.job_id].new, types(merged)) == (3, ["asset.url.discovered"] * 3)
    service_id = (await world.row(SERVICE))["id"]
    assert (await world.row(URL, ORIGIN + "a"))["service_id"] == service_id
    assert (await world.row(URL, other + "b"))["service_id"] is None
    seen = await world.rows("SELECT * FROM url_observations WHERE workspace_id = $1")
    assert {(row["run_id"], row["job_id"]) for row in seen} == {(world.run_id, job.job_id)}
    assert len(seen) == 3


async def test_foreign_link_is_left_out(world: World) -> None:
    job = world.job(URLS, link("", base="http://elsewhere.example/"), link(""))

    merged = await world.merge(URLS, job)

    assert (merged.summaries[job.job_id].outside, merged.summaries[job.job_id].new) == (1, 1)


async def test_mere_link_does_not_hide_the_answer_of_the_same_crawl(world: World) -> None:
    job = world.job(URLS, link("a", None), link("a", 200), link("a", None), minute=1)

    merged = await world.merge(URLS, job)

    assert (merged.summaries[job.job_id].new, merged.summaries[job.job_id].updated) == (1, 2)
    assert (await world.row(URL, ORIGIN + "a"))["status"] == 200
    assert (await world.row("SELECT * FROM url_observations WHERE workspace_id = $1"))["status"] == 200


async def test_late_crawl_changes_no_attribute_of_a_url(world: World) -> None:
    await world.merge(URLS, world.job(URLS, link("a", 404), minute=9))

    await world.merge(URLS, world.job(URLS, link("a", 200), minute=1))

    row = await world.row(URL, ORIGIN + "a")
    assert (row["status"], row["first_seen"], row["last_seen"]) == (404, at(1), at(9))


async def test_url_missed_by_two_crawls_of_its_service_is_gone(world: World) -> None:
    await world.merge(URLS, world.job(URLS, link(""), link("a"), minute=0))

    for minute in (1, 2):
        await world.merge(URLS, world.job(URLS, link(""), minute=minute, coverage=SCOPE))

    gone, kept = await world.row(URL, ORIGIN + "a"), await world.row(URL, ORIGIN)
    assert (gone["missed"], gone["gone_at"]) == (2, at(2))
    assert (kept["missed"], kept["gone_at"]) == (0, None)

    await world.merge(URLS, world.job(URLS, link("a"), minute=3, coverage=SCOPE))
    assert (await world.row(URL, ORIGIN + "a"))["gone_at"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"reachable": False},
        {"coverage": {"scope": "http://app.lab.test/"}},
        {"coverage": {"scope": "http://app.lab.test:8080/b/"}},
        {"minute": -1},
        {"coverage": {"scope": "%"}},
    ],
)
async def test_crawl_that_did_not_look_there_removes_nothing(
    world: World, changes: dict[str, object]
) -> None:
    await world.merge(URLS, world.job(URLS, link("a"), minute=0))

    for minute in (1, 2):
        values = {"minute": minute, "coverage": SCOPE} | changes
        await world.merge(URLS, world.job(URLS, **values))  # type: ignore[arg-type]

    assert (await world.row(URL, ORIGIN + "a"))["missed"] == 0
