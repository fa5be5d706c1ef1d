"""What the lab's web servers answer, without sockets."""

import pytest

from runlane.lab.content import Origin, answer, references
from runlane.lab.model import SECURITY_HEADERS, Page, Plant, Site, Via, Web

HERE = Origin("http", "a.test", 8080)


def site(*pages: Page, **fields: object) -> Web:
    return Web(Site("server/1", pages, **fields))  # type: ignore[arg-type]  # builder of a test


def test_unknown_path_is_not_found() -> None:
    assert answer(site(Page("/")), HERE, "/x").status == 404


def test_exact_query_goes_before_the_path_alone() -> None:
    web = site(Page("/p", title="all"), Page("/p?n=1", title="one"))

    assert answer(web, HERE, "/p?n=1").page.title == "one"
    assert answer(web, HERE, "/p?n=2").page.title == "all"


def test_catch_all_answers_what_is_not_declared() -> None:
    web = site(Page("/"), catch_all=Page("/", title="soft"))

    reply = answer(web, HERE, "/anything")

    assert (reply.status, reply.page.title) == (200, "soft")


def test_redirect_keeps_the_name_that_was_asked() -> None:
    web = site(Page("/", status=301, location="https://{host}:8443/"))

    assert answer(web, HERE, "/").headers["Location"] == "https://a.test:8443/"


def test_name_decides_the_site() -> None:
    web = Web(Site("default", ()), {"a.test": Site("named", (Page("/"),), SECURITY_HEADERS)})

    named, other = answer(web, HERE, "/"), answer(web, Origin("http", "127.7.0.9", 8080), "/")

    assert (named.status, named.headers["Server"]) == (200, "named")
    assert (other.status, other.headers["Server"]) == (404, "default")


def test_robots_names_hidden_paths_and_the_sitemap() -> None:
    web = site(Page("/"), disallow=("/hidden",), sitemap=("/listed",))

    robots, sitemap = answer(web, HERE, "/robots.txt"), answer(web, HERE, "/sitemap.xml")

    assert robots.body.decode().splitlines() == [
        "User-agent: *",
        "Disallow: /hidden",
        "Sitemap: http://a.test:8080/sitemap.xml",
    ]
    assert b"<loc>http://a.test:8080/listed</loc>" in sitemap.body


def test_site_without_rules_has_no_robots_file() -> None:
    assert answer(site(Page("/")), HERE, "/robots.txt").status == 404


def test_markup_in_the_description_is_escaped() -> None:
    body = answer(site(Page("/", title="<b>", links=('"x',))), HERE, "/").body

    assert b"<title>&lt;b&gt;</title>" in body
    assert b'href="&quot;x"' in body


def test_directory_listing_looks_like_one() -> None:
    page = Page("/", title="Index of /", links=("a.txt",), plant=Plant.DIRECTORY_LISTING)

    body = answer(site(page), HERE, "/").body

    assert b'<h1>Index of /</h1><hr><pre><a href="../">../</a>\n<a href="a.txt">a.txt</a>' in body


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/x", "/x"),
        ("y", "/d/y"),
        ("../z", "/z"),
        ("/x#part", "/x"),
        ("?n=1", "/d/?n=1"),
        ("http://a.test:8080/same", "/same"),
    ],
)
def test_reference_is_resolved_against_its_page(written: str, path: str) -> None:
    assert references(HERE, "/d/", Page("/d/", links=(written,))) == [(path, Via.LINK)]


@pytest.mark.parametrize(
    "written",
    [
        "http://b.test:8080/",
        "https://a.test:8080/",
        "http://a.test/",
        "mailto:a@a.test",
        "javascript:void(0)",
    ],
)
def test_reference_to_another_origin_leads_nowhere(written: str) -> None:
    assert references(HERE, "/", Page("/", links=(written,))) == []


def test_references_tell_how_they_were_seen() -> None:
    page = Page("/", links=("/l",), forms=("/f",), scripts=("/s",))

    assert references(HERE, "/", page) == [("/s", Via.SCRIPT), ("/l", Via.LINK), ("/f", Via.FORM)]
