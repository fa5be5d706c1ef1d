"""Checks of answers and certificates: what is found, and that no input makes them fail."""

import base64
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.probes import webcheck
from runlane.probes.checks import (
    CHECKS,
    find_exposed_env,
    find_exposed_git,
    find_listing,
    find_missing_headers,
)
from runlane.probes.html import Page, Tag
from runlane.probes.job import Refused
from runlane.probes.technologies import find_technologies
from runlane.probes.tls import TlsSession, describe
from runlane.probes.web import Answer
from runlane.tools import Category, parse_records
from runlane.tools.urls import parse_url
from runlane.tools.vulnerabilities import FindingRecord
from tests.unit.probe_servers import Reply, Request, WebServer, page, run_job, serve_http, server_context

GIT_HEAD = "ref: refs/heads/main\n"
ENV_FILE = "# secrets\nexport API_KEY='s3cret'\nDB_PASSWORD=hunter2\n\n"
COMPLETE = {
    "Content-Security-Policy": "default-src 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
}
NGINX = '<title>Index of /f/</title><pre><a href="../">../</a><a href="b.txt">b.txt</a></pre>'
APACHE = '<title>Index of /f</title><a href="?C=N;O=D">Name</a><a href="/">Parent</a><a href="sub/">sub/</a>'
PYTHON = "<title>Directory listing for /f/</title><ul><li><a href=a%20b.txt>a b.txt</a></ul>"


def answer(
    body: str,
    url: str = "http://app.test/f/",
    *,
    html: bool = True,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    head = {"content-type": "text/html" if html else "text/plain"}
    head |= {name.lower(): value for name, value in (headers or {}).items()}
    return Answer(parse_url(url), status, head, (), body.encode(), False, 1, None)


async def check(
    server: WebServer, *, scheme: str = "http", **options: Any
) -> tuple[list[FindingRecord], Any]:
    url = f"{scheme}://app.test:{server.port}/"
    target = {"host": "app.test", "address": server.host, "port": server.port, "url": url}
    records, done = await run_job(webcheck.run_job, target, **options)
    parsed = parse_records(Category.VULNERABILITIES, records)
    assert parsed.quarantined == 0, parsed.sample
    return [record for record in parsed.records if isinstance(record, FindingRecord)], done


class TestProbe:
    async def test_planted_faults_are_found_where_they_are(self) -> None:
        replies = {
            "/": page("hello"),
            "/.git/HEAD": Reply(GIT_HEAD.encode()),
            "/.env": Reply(ENV_FILE.encode(), headers={"Content-Type": "application/octet-stream"}),
        }

        async with serve_http(
            lambda request: replies.get(request.target, page("gone", status=404))
        ) as server:
            findings, done = await check(server)

        origin = f"http://app.test:{server.port}"
        assert {(each.check, each.url) for each in findings} == {
            ("exposed-git", f"{origin}/.git/HEAD"),
            ("exposed-env", f"{origin}/.env"),
            ("missing-security-headers", f"{origin}/"),
        }
        assert not any("s3cret" in str(each) or "hunter2" in str(each) for each in findings)
        assert (done.complete, done.reachable) == (True, True)
        assert done.coverage == {
            "url": f"{origin}/",
            "checks": ["directory-listing", "missing-security-headers", "exposed-git", "exposed-env"],
        }

    @pytest.mark.parametrize("body", [GIT_HEAD, "KEY=VALUE\n"])
    async def test_a_server_that_has_every_path_has_no_exposed_files(self, body: str) -> None:
        async with serve_http(
            lambda _: Reply(body.encode(), headers={"Content-Type": "text/plain"})
        ) as server:
            findings, done = await check(server)

        assert findings == []
        assert done.complete

    @pytest.mark.parametrize(
        ("password", "asked", "tries", "found"),
        [
            ("admin", True, 2, ["default-login"]),
            ("password", True, 3, ["default-login"]),
            ("changed", True, 3, []),
            ("admin", False, 1, []),
        ],
    )
    async def test_default_login_is_tried_when_asked_for_and_seldom(
        self, password: str, asked: bool, tries: int, found: list[str]
    ) -> None:
        token = base64.b64encode(f"admin:{password}".encode()).decode()
        seen: list[str] = []

        def reply(request: Request) -> Reply:
            if request.target == "/":
                seen.append(request.headers.get("authorization", ""))
            if request.headers.get("authorization") == f"basic {token}".lower():
                return page("in", COMPLETE)
            return Reply(b"no", status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

        async with serve_http(reply) as server:
            findings, done = await check(server, default_logins=asked)

        assert [each.check for each in findings] == found
        assert len(seen) == tries
        assert ("default-login" in done.coverage["checks"]) is asked
        assert not any(token in str(each) for each in findings)

    async def test_bad_certificates_are_found(self, tmp_path: Path) -> None:
        context = server_context(tmp_path, days=-1)
        async with serve_http(lambda _: page("x", COMPLETE), tls=context) as server:
            findings, done = await check(server, scheme="https")

        assert {each.check for each in findings} == {"tls-expired", "tls-self-signed"}
        assert {"tls-expired", "tls-self-signed"} <= set(done.coverage["checks"])

    async def test_a_service_in_order_has_no_findings(self) -> None:
        def respond(request: Request) -> Reply:
            return page("x", COMPLETE) if request.target == "/" else page("gone", status=404)

        async with serve_http(respond) as server:
            findings, _ = await check(server)

        assert findings == []

    async def test_a_service_that_does_not_answer_was_not_checked(self) -> None:
        async with serve_http(lambda _: b"") as server:
            findings, done = await check(server)

        assert (findings, done.complete, done.reachable) == ([], False, False)
        assert done.coverage["checks"] == []

    async def test_a_check_without_answer_is_not_covered(self) -> None:
        def respond(request: Request) -> Reply | bytes:
            return b"" if request.target == "/.env" else page("x", status=404)

        async with serve_http(respond) as server:
            _, done = await check(server)

        assert "exposed-env" not in done.coverage["checks"]
        assert "exposed-git" in done.coverage["checks"]
        assert (done.complete, done.reachable) == (False, True)

    async def test_a_service_that_may_not_be_contacted_is_refused(self) -> None:
        async with serve_http(lambda _: page("x")) as server:
            with pytest.raises(Refused):
                await check(server, allow=["10.0.0.0/8"])

        assert server.connections == 0


class TestExposedFiles:
    @pytest.mark.parametrize("body", [GIT_HEAD, "ref: refs/heads/feature/x-1", "\nref: refs/heads/main\r\n"])
    def test_head_of_a_repository(self, body: str) -> None:
        assert find_exposed_git(answer(body, html=False)) == body.strip()

    @pytest.mark.parametrize(
        "body", ["", "ref:", "about ref: refs/heads/main", GIT_HEAD + "and more", "a" * 40]
    )
    def test_other_text_is_no_head(self, body: str) -> None:
        assert find_exposed_git(answer(body, html=False)) is None

    def test_pages_and_errors_are_no_files(self) -> None:
        assert find_exposed_git(answer(GIT_HEAD)) is None
        assert find_exposed_git(answer(GIT_HEAD, html=False, status=403)) is None
        assert find_exposed_env(answer("A=B")) is None
        assert find_exposed_env(answer("A=B", html=False, status=404)) is None

    def test_values_of_an_environment_file_are_masked(self) -> None:
        assert find_exposed_env(answer(ENV_FILE, html=False)) == "API_KEY=***\nDB_PASSWORD=***"

    @pytest.mark.parametrize(
        "body", ["", "# only a comment", "A=B\nprose", "1A=B", "{'a': 'b=c'}", "a b=c", "<A=B>"]
    )
    def test_other_text_is_no_environment_file(self, body: str) -> None:
        assert find_exposed_env(answer(body, html=False)) is None


class TestListing:
    @pytest.mark.parametrize("body", [NGINX, APACHE, PYTHON])
    def test_listings_of_common_servers(self, body: str) -> None:
        assert find_listing(answer(body)) is not None

    def test_listing_of_the_root(self) -> None:
        body = '<title>Index of /</title><a href="../">../</a><a href="archive/">archive/</a>'

        assert find_listing(answer(body, "http://app.test/")) is not None

    @pytest.mark.parametrize(
        "body",
        [
            NGINX.replace("/f/", "/g/"),
            "<title>Index of /f/, a blog</title><a href=b.txt>",
            '<title>Index of /f/</title><p>An article.<a href="/posts/1">more</a>',
            '<title>Index of /f/</title><a href="https://elsewhere.test/">x</a>',
            '<title>Index of /f/</title><a href="sub/page">x</a>',
            "<title>Index of /f/</title>no links",
            "<h1>Index of /f/</h1><a href=b.txt>",
        ],
    )
    def test_pages_that_only_talk_of_listings(self, body: str) -> None:
        assert find_listing(answer(body)) is None

    def test_a_file_or_an_error_is_no_listing(self) -> None:
        assert find_listing(answer(NGINX, "http://app.test/f")) is None
        assert find_listing(answer(NGINX, html=False)) is None
        assert find_listing(answer(NGINX, status=403)) is None


class TestHeaders:
    def test_missing_headers_are_named(self) -> None:
        assert find_missing_headers(answer("x", headers={"Referrer-Policy": "no-referrer"})) == (
            "missing: content-security-policy, x-content-type-options, x-frame-options"
        )

    def test_transport_security_is_only_asked_of_tls(self) -> None:
        headers = {name: value for name, value in COMPLETE.items() if name != "Strict-Transport-Security"}

        assert find_missing_headers(answer("x", headers=headers)) is None
        assert find_missing_headers(answer("x", "https://app.test/", headers=headers)) == (
            "missing: strict-transport-security"
        )

    def test_frame_ancestors_replace_frame_options(self) -> None:
        headers = {**COMPLETE, "Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": ""}

        assert find_missing_headers(answer("x", headers=headers)) is None

    @pytest.mark.parametrize(("html", "status"), [(False, 200), (True, 404), (True, 301)])
    def test_only_pages_need_them(self, html: bool, status: int) -> None:
        assert find_missing_headers(answer("x", html=html, status=status)) is None


@given(st.text(max_size=200), st.sampled_from(["/", "/f/", "/f"]))
def test_no_text_makes_a_check_fail(body: str, path: str) -> None:
    for html in (True, False):
        given_answer = answer(body, f"http://app.test{path}", html=html)
        for find in (find_exposed_git, find_exposed_env, find_listing, find_missing_headers):
            find(given_answer)


def test_every_check_makes_a_record_that_reads_back() -> None:
    records = [check.finding(parse_url("http://a.test/x"), "e" * 1_000) for check in CHECKS.values()]

    parsed = parse_records(Category.VULNERABILITIES, records)

    assert (len(parsed.records), parsed.quarantined) == (len(CHECKS), 0)


@pytest.mark.parametrize("der", [b"", b"\x30\x03\x02\x01\x01", b"\x30" * 1_000, None])
def test_a_broken_certificate_is_described_as_far_as_it_goes(der: bytes | None) -> None:
    fields = describe(TlsSession("TLSv1.3", "AES", der), datetime.now(UTC))

    assert fields["version"] == "TLSv1.3"
    assert not fields.get("expired")
    assert not fields.get("self_signed")


@given(position=st.integers(0, 1_000), value=st.integers(0, 255))
def test_no_changed_byte_makes_a_certificate_fail(certificate_der: bytes, position: int, value: int) -> None:
    changed = bytearray(certificate_der)
    changed[position % len(changed)] = value

    describe(TlsSession(None, None, bytes(changed)), datetime.now(UTC) + timedelta(days=1))


@pytest.fixture(scope="module")
def certificate_der(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("certificate")
    server_context(folder)
    pem = (folder / "app.test.pem").read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])


@pytest.mark.parametrize(
    ("headers", "cookies", "tags", "expected"),
    [
        (
            {"server": "Apache/2.4.58 (Debian) OpenSSL/3.0"},
            (),
            [],
            [("Apache HTTP Server", "2.4.58"), ("OpenSSL", "3.0")],
        ),
        ({"server": "nginx"}, (), [], [("nginx", None)]),
        ({"server": "not-an-nginxish-thing"}, (), [], []),
        ({}, ("JSESSIONID", "x"), [], [("Java Servlet", None)]),
        ({"x-powered-by": "PHP/8.2"}, ("PHPSESSID",), [], [("PHP", "8.2")]),
        ({}, (), [Tag("meta", {"name": "Generator", "content": "Hugo 0.128.0"})], [("Hugo", "0.128.0")]),
        ({}, (), [Tag("script", {"src": "/js/jquery-3.7.1.min.js"})], [("jQuery", "3.7.1")]),
        ({}, (), [Tag("link", {"href": "/wp-content/a.css"})], [("WordPress", None)]),
    ],
)
def test_technologies_are_told_by_headers_cookies_and_markup(
    headers: dict[str, str], cookies: tuple[str, ...], tags: list[Tag], expected: list[tuple[str, str | None]]
) -> None:
    given_answer = Answer(parse_url("http://a.test/"), 200, headers, cookies, b"", False, 1, None)

    found = find_technologies(given_answer, Page(tags=tags))

    assert [(each["name"], each["version"]) for each in found] == expected
