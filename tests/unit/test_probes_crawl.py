"""The crawler: which URLs it tells, which it asks, and where it stops."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from runlane.probes import webcrawl
from runlane.probes.job import Refused
from runlane.probes.web import Answer
from runlane.probes.webcrawl import find_leads
from runlane.tools import Category, parse_records
from runlane.tools.url_discovery import UrlRecord
from runlane.tools.urls import parse_url
from tests.unit.probe_servers import Reply, Request, WebServer, page, run_job, serve_http


def site(pages: Mapping[str, Reply | str]) -> Callable[[Request], Reply]:
    def respond(request: Request) -> Reply:
        found = pages.get(request.target)
        if found is None:
            return page("gone", status=404)
        return page(found) if isinstance(found, str) else found

    return respond


async def crawl(server: WebServer, **options: Any) -> tuple[dict[str, UrlRecord], Any]:
    origin = f"http://app.test:{server.port}"
    target = {"host": "app.test", "address": server.host, "port": server.port, "url": f"{origin}/"}
    records, done = await run_job(webcrawl.run_job, target, **options)
    parsed = parse_records(Category.URL_DISCOVERY, records)
    assert parsed.quarantined == 0, parsed.sample
    urls = [record for record in parsed.records if isinstance(record, UrlRecord)]
    assert len({record.url for record in urls}) == len(urls)
    assert done.coverage == {"scope": f"{origin}/"}
    return {record.url.removeprefix(origin): record for record in urls}, done


def leads(body: str, url: str = "http://app.test/dir/page", **headers: str) -> list[tuple[str, str]]:
    head = {"content-type": "text/html", **headers}
    answer = Answer(parse_url(url), 200, head, (), body.encode(), False, 1, None)
    return [(str(lead.url), lead.source) for lead in find_leads(answer)]


async def test_every_url_is_told_once_with_its_least_depth_and_source() -> None:
    pages: dict[str, Reply | str] = {
        "/": '<script src=s.js></script><a href="/a#x">a</a><a href="a#y"></a><form action=/f></form>',
        "/a": '<a href="/">up</a><a href="/b">b</a><a href="/gone">gone</a>',
        "/b": '<a href="/c">c</a>',
        "/c": '<a href="/too-deep">d</a>',
        "/s.js": Reply(b"'<a href=/no>'", headers={"Content-Type": "text/javascript"}),
        "/f": "form",
    }
    async with serve_http(site(pages)) as server:
        found, done = await crawl(server)

    assert {path: (each.status, each.depth, each.source) for path, each in found.items()} == {
        "/": (200, 0, "start"),
        "/s.js": (200, 1, "script"),
        "/a": (200, 1, "link"),
        "/f": (200, 1, "form"),
        "/b": (200, 2, "link"),
        "/gone": (404, 2, "link"),
        "/c": (200, 3, "link"),
    }
    assert (done.complete, done.reachable) == (True, True)


async def test_robots_and_sitemaps_name_urls_one_link_away() -> None:
    def respond(request: Request) -> Reply:
        here = f"http://{request.headers['host']}"
        robots = f"User-agent: *\nDisallow: /secret/\nAllow: /ok$\nDisallow: /*?x\nSitemap: {here}/maps.xml\n"
        xml = {"Content-Type": "application/xml"}
        pages: dict[str, Reply | str] = {
            "/": '<a href="/secret/">also linked</a>',
            "/robots.txt": Reply(robots.encode(), headers={"Content-Type": "text/plain"}),
            "/maps.xml": Reply(
                f"<sitemapindex><loc>{here}/map1.xml</loc><loc>{here}/maps.xml</loc></sitemapindex>".encode(),
                headers=xml,
            ),
            "/map1.xml": Reply(
                f"<urlset><url><loc>\n{here}/listed </loc></url><loc>http://x.test/</loc></urlset>".encode(),
                headers=xml,
            ),
        }
        return site(pages)(request)

    async with serve_http(respond) as server:
        found, _ = await crawl(server)

    assert {path: (each.depth, each.source) for path, each in found.items()} == {
        "/": (0, "start"),
        "/secret/": (1, "robots"),
        "/ok": (1, "robots"),
        "/listed": (1, "sitemap"),
    }


async def test_other_origins_are_neither_told_nor_asked() -> None:
    async with serve_http(lambda _: page("x"), host="127.0.0.2") as other:
        body = f'<a href="http://127.0.0.2:{other.port}/x"></a><a href="https://app.test/"></a>'
        async with serve_http(site({"/": body})) as server:
            found, _ = await crawl(server)

    assert set(found) == {"/"}
    assert other.connections == 0


async def test_redirects_are_links_and_those_elsewhere_are_not_followed() -> None:
    pages: dict[str, Reply | str] = {
        "/": '<a href="/in"></a><a href="/out"></a>',
        "/in": Reply(status=302, headers={"Location": "/landed"}),
        "/out": Reply(status=302, headers={"Location": "http://169.254.169.254/latest/"}),
    }
    async with serve_http(site(pages)) as server:
        found, done = await crawl(server)

    assert {path: (each.status, each.depth) for path, each in found.items()} == {
        "/": (200, 0),
        "/in": (302, 1),
        "/out": (302, 1),
        "/landed": (404, 2),
    }
    assert done.complete


async def test_forms_that_would_change_something_are_only_told() -> None:
    body = '<form method=POST action="/delete"></form><form action="/search"></form>'
    async with serve_http(site({"/": body})) as server:
        found, done = await crawl(server)

    assert (found["/delete"].status, found["/search"].status) == (None, 404)
    assert "/delete" not in server.targets
    assert done.complete


async def test_an_endless_site_is_cut_at_the_page_limit() -> None:
    def respond(request: Request) -> Reply:
        here = request.target.rstrip("/")
        return page("".join(f'<a href="{here}/{number}"></a>' for number in range(30)))

    async with serve_http(respond) as server:
        found, done = await crawl(server, max_pages=50)

    asked = [path for path, each in found.items() if each.status is not None]
    assert len(asked) == 50
    assert len(found) > 50
    assert not done.complete


async def test_a_site_that_does_not_answer_is_an_incomplete_result_that_says_nothing() -> None:
    async with serve_http(lambda _: b"") as server:
        found, done = await crawl(server)

    assert (found, done.complete, done.reachable) == ({}, False, False)


async def test_a_page_that_breaks_off_is_told_without_status() -> None:
    def respond(request: Request) -> Reply | bytes:
        return b"" if request.target == "/broken" else page('<a href="/broken"></a>')

    async with serve_http(respond) as server:
        found, done = await crawl(server)

    assert found["/broken"].status is None
    assert (done.complete, done.reachable) == (False, True)


async def test_a_site_that_may_not_be_contacted_is_refused() -> None:
    async with serve_http(lambda _: page("x")) as server:
        with pytest.raises(Refused):
            await crawl(server, allow=[])

    assert server.connections == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<a href="../x?b=1&amp;a=2#f">', [("http://app.test/x?b=1&a=2", "link")]),
        ('<base href="/other/"><a href="x">', [("http://app.test/other/x", "link")]),
        ('<a href=" /a\n/b c ">', [("http://app.test/a/b%20c", "link")]),
        ('<iframe src="//x.test/y">', [("http://x.test/y", "link")]),
        ('<meta http-equiv=Refresh content="0; URL=/next">', [("http://app.test/next", "link")]),
        ("<form>", [("http://app.test/dir/page", "form")]),
        ('<a href="javascript:x()"><a href="mailto:a@b"><a href="http://[">', []),
        ('<a href="http://user:pw@app.test/">', []),
        ("<a><script></script>", []),
    ],
)
def test_references_are_read_as_browsers_do(body: str, expected: list[tuple[str, str]]) -> None:
    assert leads(body) == expected
