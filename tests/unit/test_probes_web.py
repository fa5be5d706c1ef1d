"""URLs that a target stands for, and the text of an answer."""

import asyncio
import gzip
import resource
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runlane.probes import web, webprobe
from runlane.probes.body import BoundedBody
from runlane.probes.egress import Egress
from runlane.probes.job import BadInput, DoneOutcome, Options, ProbeTarget, Refused
from runlane.probes.web import NoAnswer, WebClient
from runlane.tools import Category, parse_records
from runlane.tools.http_probe import HttpRecord
from runlane.tools.urls import parse_url
from tests.unit.probe_servers import (
    LOOPBACK,
    Reply,
    Request,
    WebServer,
    page,
    run_job,
    serve_dns,
    serve_http,
    serve_tcp,
    server_context,
)

MIB = 1024 * 1024


def client(**addresses: str) -> WebClient:
    known = {host.replace("_", "."): address for host, address in addresses.items()}
    return WebClient(Egress(Options(60.0, tuple(LOOPBACK))), known)


def here(server: WebServer, path: str = "/", host: str = "app.test", scheme: str = "http") -> Any:
    return parse_url(f"{scheme}://{host}:{server.port}{path}")


async def probe(server: WebServer, *, tls: bool | None = False, **options: Any) -> HttpRecord:
    target = {"host": "app.test", "address": server.host, "port": server.port, "tls": tls}
    records, done = await run_job(webprobe.run_job, target, **options)
    assert (done.outcome, done.reachable, done.complete) == (DoneOutcome.COMPLETED, True, True)
    parsed = parse_records(Category.HTTP_PROBE, records)
    assert parsed.quarantined == 0, parsed.sample
    [record] = parsed.records
    assert isinstance(record, HttpRecord)
    return record


async def test_headers_of_a_step_are_sent_to_its_own_service_only() -> None:
    def respond(request: Request) -> Reply:
        if request.headers["host"].startswith("app.test"):
            return Reply(status=302, headers={"Location": f"http://127.0.0.1:{other.port}/"})
        return page("x")

    async with serve_http(lambda _: page("x")) as other, serve_http(respond) as server:
        await probe(server, headers={"Authorization": "Bearer x", "user-agent": "Scan"})

    assert server.requests[0].headers["authorization"] == "bearer x"
    assert server.requests[0].headers["user-agent"] == "scan"
    assert [request.headers.get("authorization") for request in other.requests] == [None]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other.test"},
        {"X": "a\r\nY: b"},
        {"X Y": "a"},
        {"X": {"secret_ref": "gone"}},
        {str(number): "x" for number in range(30)},
        ["X: y"],
    ],
)
async def test_headers_that_would_change_the_request_itself_are_refused(headers: object) -> None:
    target = {"host": "app.test", "address": "127.0.0.1", "port": 1}
    with pytest.raises(BadInput, match="option headers"):
        await run_job(webprobe.run_job, target, headers=headers)


class TestClient:
    async def test_the_connection_is_pinned_and_host_is_kept(self) -> None:
        async with serve_http(lambda _: page("x")) as server, client(app_test="127.0.0.1") as http:
            answer = await http.get(here(server, "/a?b=%2F"))

        assert answer.status == 200
        assert server.requests == [Request("/a?b=%2F", server.requests[0].headers)]
        assert server.requests[0].headers["host"] == f"app.test:{server.port}"

    async def test_the_name_is_sent_in_the_handshake_and_the_session_told(self, tmp_path: Path) -> None:
        context = server_context(tmp_path)
        async with (
            serve_http(lambda _: page("x"), tls=context) as server,
            client(app_test="127.0.0.1") as http,
        ):
            answer = await http.get(here(server, scheme="https"))

        assert server.server_names == ["app.test"]
        assert answer.tls is not None
        assert answer.tls.version == "TLSv1.3"
        assert answer.tls.certificate_der

    async def test_connections_are_kept_for_a_host_and_not_shared_with_another(self) -> None:
        known = {"app_test": "127.0.0.1", "other_test": "127.0.0.1"}
        async with serve_http(lambda _: page("x")) as server, client(**known) as http:
            for _ in range(3):
                await http.get(here(server))
            await http.get(here(server, host="other.test"))

        assert server.connections == 2

    async def test_a_kept_connection_that_was_closed_is_opened_anew(self) -> None:
        replies: Iterator[Any] = iter([page("1"), b"", page("2")])
        async with serve_http(lambda _: next(replies)) as server, client(app_test="127.0.0.1") as http:
            await http.get(here(server))
            answer = await http.get(here(server))

        assert answer.body == b"2"

    async def test_proxies_of_the_environment_are_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        async with serve_http(lambda _: page("x")) as server, client(app_test="127.0.0.1") as http:
            assert (await http.get(here(server))).status == 200

    async def test_a_host_that_leads_inside_is_refused_before_any_connection(self) -> None:
        async with (
            serve_http(lambda _: page("x")) as server,
            serve_dns({"in.test": {"A": ["127.0.0.1"]}}) as dns,
        ):
            address, _, port = dns.address.rpartition(":")
            async with WebClient(Egress(Options(60.0, (), (address, int(port)))), {}) as http:
                with pytest.raises(Refused):
                    await http.get(here(server, host="in.test"))

        assert server.connections == 0

    @pytest.mark.parametrize(
        "raw",
        [
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
            b"HTTP/1.1 999999 What\r\n\r\n",
        ],
    )
    async def test_what_is_not_http_is_no_answer(self, raw: bytes) -> None:
        async with serve_http(lambda _: raw) as server, client(app_test="127.0.0.1") as http:
            with pytest.raises(NoAnswer):
                await http.get(here(server))

    async def test_a_drip_is_cut_off_by_the_total_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(web, "REQUEST_S", 0.3)

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        async with serve_tcp(drip) as port, client(app_test="127.0.0.1") as http:
            with pytest.raises(NoAnswer, match="TimeoutError"):
                await http.get(parse_url(f"http://app.test:{port}/"))

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_a_bomb_costs_the_limit_and_not_its_size(self, encoding: str) -> None:
        zeros = b"\0" * (64 * MIB)
        bomb = gzip.compress(zeros) if encoding == "gzip" else zlib.compress(zeros)
        reply = Reply(bomb, headers={"Content-Encoding": encoding})
        async with serve_http(lambda _: reply) as server, client(app_test="127.0.0.1") as http:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            answer = await http.get(here(server))

        assert len(answer.body) == MIB
        assert answer.is_cut
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024

    async def test_an_endless_body_is_cut(self) -> None:
        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

        async with serve_tcp(pour) as port, client(app_test="127.0.0.1") as http:
            answer = await http.get(parse_url(f"http://app.test:{port}/"), max_body=1_000)

        assert answer.body == b"x" * 1_000
        assert answer.is_cut


class TestBody:
    @pytest.mark.parametrize(
        ("encoding", "data"),
        [
            ("", b"plain"),
            ("br", b"plain"),
            ("gzip", gzip.compress(b"plain", mtime=0)),
            ("x-gzip", gzip.compress(b"plain", mtime=0)),
            ("deflate", zlib.compress(b"plain")),
            ("deflate", zlib.compress(b"plain")[2:-4]),
        ],
    )
    def test_encodings_are_undone_byte_by_byte_too(self, encoding: str, data: bytes) -> None:
        body = BoundedBody(100, encoding)
        if encoding != "deflate":
            for byte in data:
                body.feed(bytes([byte]))
        else:
            body.feed(data)

        assert body.value() == b"plain"
        assert not body.is_cut

    def test_a_body_of_exactly_the_limit_is_not_cut(self) -> None:
        body = BoundedBody(5, "gzip")

        assert body.feed(gzip.compress(b"plain"))
        assert not body.is_cut

    def test_a_broken_body_is_cut(self) -> None:
        body = BoundedBody(100, "gzip")

        assert not body.feed(b"not gzip")
        assert body.is_cut


class TestProbe:
    async def test_the_answer_is_described(self) -> None:
        def respond(request: Request) -> Reply:
            if request.target == "/icon.png":
                return Reply(b"icon", headers={"Content-Type": "image/png"})
            return page(
                '<title> A &amp; B\n</title><link rel="shortcut icon" href="/icon.png">'
                '<meta name=generator content="WordPress 6.5.2">',
                {"Server": "nginx/1.24.0", "X-Powered-By": "PHP/8.2.7", "Set-Cookie": "PHPSESSID=1"},
            )

        async with serve_http(respond) as server:
            record = await probe(server, timeout_s=30)

        assert record.url == f"http://app.test:{server.port}/"
        assert (record.status, record.title, record.server) == (200, "A & B", "nginx/1.24.0")
        assert {(each.name, each.version) for each in record.technologies} == {
            ("nginx", "1.24.0"),
            ("PHP", "8.2.7"),
            ("WordPress", "6.5.2"),
        }
        assert record.favicon_sha256 is not None
        assert record.redirects == ()
        assert record.tls is None

    async def test_tls_is_found_and_its_certificate_described(self, tmp_path: Path) -> None:
        context = server_context(tmp_path, days=-1)
        async with serve_http(lambda _: page("x"), tls=context) as server:
            record = await probe(server, tls=None)

        assert record.scheme == "https"
        assert record.tls is not None
        assert (record.tls.subject_cn, record.tls.san) == ("app.test", ("app.test", "127.0.0.1"))
        assert record.tls.expired
        assert record.tls.self_signed

    async def test_redirects_are_followed_and_told_but_the_status_is_the_services_own(self) -> None:
        def respond(request: Request) -> Reply:
            number = int(request.target.strip("/") or 0)
            return Reply(status=302, headers={"Location": f"/{number + 1}"}) if number < 3 else page("end")

        async with serve_http(respond) as server:
            record = await probe(server)

        assert record.status == 302
        assert [redirect.status for redirect in record.redirects] == [302, 302, 302]
        assert record.final_url == f"http://app.test:{server.port}/3"

    async def test_a_redirect_loop_ends(self) -> None:
        async with serve_http(lambda _: Reply(status=302, headers={"Location": "/"})) as server:
            record = await probe(server)

        assert len(record.redirects) == webprobe.MAX_REDIRECTS

    @pytest.mark.parametrize(
        "place",
        ["http://{closed}/", "http://169.254.169.254/latest/", "http://secret.test:{port}/", "ftp://x/"],
    )
    async def test_a_redirect_to_a_refused_address_is_not_followed(self, place: str) -> None:
        async with (
            serve_http(lambda _: page("secret"), host="127.0.0.2") as secret,
            serve_dns({"secret.test": {"A": ["127.0.0.2"]}}) as dns,
        ):
            location = place.format(closed=f"127.0.0.2:{secret.port}", port=secret.port)
            reply = Reply(status=302, headers={"Location": location})
            async with serve_http(lambda _: reply) as server:
                record = await probe(server, allow=["127.0.0.1/32"], resolver=dns.address)

        assert secret.connections == 0
        assert record.final_url == f"http://app.test:{server.port}/"

    @pytest.mark.parametrize(
        "deny", ["secret.test", ".test", "127.0.0.2/32", "::ffff:127.0.0.2/128", ":{port}"]
    )
    async def test_a_redirect_to_what_is_excluded_sends_nothing_there(self, deny: str) -> None:
        async with (
            serve_http(lambda _: page("secret"), host="127.0.0.2") as secret,
            serve_dns({"secret.test": {"A": ["127.0.0.2"]}}) as dns,
        ):
            reply = Reply(status=302, headers={"Location": f"http://secret.test:{secret.port}/"})
            async with serve_http(lambda _: reply) as server:
                target = {"host": "127.0.0.1", "port": server.port, "tls": False}
                excluded = [deny.format(port=secret.port)]
                records, _ = await run_job(webprobe.run_job, target, resolver=dns.address, deny=excluded)

        assert secret.connections == 0
        assert records[0]["final_url"] == f"http://127.0.0.1:{server.port}/"

    @pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b""])
    async def test_a_service_that_is_not_http_is_an_empty_result(self, greeting: bytes) -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting)
            await reader.read(100)

        async with serve_tcp(greet) as port:
            target = {"host": "127.0.0.1", "port": port}
            records, done = await run_job(webprobe.run_job, target)

        assert records == []
        assert (done.outcome, done.reachable, done.complete) == (DoneOutcome.COMPLETED, True, True)

    async def test_a_host_without_address_is_an_empty_result_that_says_nothing(self) -> None:
        async with serve_dns({}) as dns:
            target = {"host": "gone.test", "port": 80}
            records, done = await run_job(webprobe.run_job, target, resolver=dns.address)

        assert (records, done.outcome, done.reachable) == ([], DoneOutcome.COMPLETED, False)

    async def test_a_target_that_may_not_be_contacted_is_refused(self) -> None:
        with pytest.raises(Refused):
            await run_job(webprobe.run_job, {"host": "a.test", "address": "10.0.0.1", "port": 80})


@pytest.mark.parametrize(
    ("target", "urls"),
    [
        (ProbeTarget("A.test", "host", port=8080), ["https://a.test:8080/", "http://a.test:8080/"]),
        (ProbeTarget("a.test", "host", port=80, tls=False), ["http://a.test/"]),
        (ProbeTarget("::1", "host", port=443, tls=True), ["https://[::1]/", "http://[::1]:443/"]),
        (ProbeTarget("a.test", "host", port=1, url="http://a.test:2/x"), ["http://a.test:2/x"]),
    ],
)
def test_urls_to_try(target: ProbeTarget, urls: list[str]) -> None:
    assert [str(url) for url in webprobe.candidate_urls(target)] == urls


@pytest.mark.parametrize(
    "target",
    [
        ProbeTarget("a.test", "host"),
        ProbeTarget("a b", "host", port=80),
        ProbeTarget("-oN/x", "host", port=80),
        ProbeTarget("a.test", "host", url="file:///etc/passwd"),
    ],
)
def test_a_target_without_place_or_name_is_bad_input(target: ProbeTarget) -> None:
    with pytest.raises(BadInput):
        webprobe.candidate_urls(target)


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/html; charset=ISO-8859-1", b"\xe9", "é"),
        ("text/html; charset='UTF-8'", "é".encode(), "é"),
        ("text/html; charset=hex", b"6869", "6869"),
        ("text/html; charset=unicode_escape", b"\\n", "\\n"),
        ("text/html; charset=\x00", b"x", "x"),
        ("text/html", b"\xff", "\ufffd"),
    ],
)
def test_text_is_decoded_by_known_charsets_only(content_type: str, body: bytes, text: str) -> None:
    url = parse_url("http://a.test/")
    answer = web.Answer(url, 200, {"content-type": content_type}, (), body, False, 1, None)

    assert answer.text == text
