"""Lists of ports as text, and the probe of open ports."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.probes import portprobe
from runlane.probes.egress import Egress
from runlane.probes.job import BadInput, Refused
from runlane.probes.resolver import NoVerdict
from runlane.tools.portlists import DEFAULT_PORTS, MalformedPorts, format_ports, parse_ports
from tests.unit.probe_servers import page, run_job, serve_dns, serve_http, serve_tcp, server_context


@asynccontextmanager
async def greeting(text: bytes, host: str = "127.0.0.1") -> AsyncIterator[int]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await reader.read(1)

    async with serve_tcp(greet, host=host) as port:
        yield port


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("80", [80]),
        (" 8080, 1-3 ,2", [1, 2, 3, 8080]),
        ([443, "80-81"], [80, 81, 443]),
        ("1-65535", list(range(1, 65_536))),
        (None, sorted(DEFAULT_PORTS)),
    ],
)
def test_port_lists_are_read(value: Any, ports: list[int]) -> None:
    assert parse_ports(value) == ports


async def test_excluded_port_is_not_tried_and_the_result_says_nothing_about_it() -> None:
    async with greeting(b"one") as one, greeting(b"two") as two:
        records, done = await run_job(
            portprobe.run_job, {"host": "127.0.0.1", "deny": [f":{two}"]}, ports=[one, two]
        )

    assert [record["port"] for record in records] == [one]
    assert done.coverage["ports"] == str(one)


@pytest.mark.parametrize(
    "value", ["", "0", "65536", "5-1", "x", "1--2", "-5", "1,", [], [True], [1.5], 80, {}, "٣"]
)
async def test_anything_else_is_bad_input(value: Any) -> None:
    with pytest.raises(MalformedPorts):
        parse_ports(value)
    with pytest.raises(BadInput, match="option ports"):
        await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports=value)


def test_many_wide_ranges_are_read_without_naming_each_port_of_each() -> None:
    assert parse_ports(["1-65535"] * 65_535) == list(range(1, 65_536))


@given(st.sets(st.integers(1, 65_535), min_size=1, max_size=50))
def test_formatted_ports_read_back(ports: set[int]) -> None:
    assert parse_ports(format_ports(sorted(ports))) == sorted(ports)


def test_ranges_are_joined_in_the_shortest_text() -> None:
    assert format_ports([1, 2, 3, 8080, 8082, 8083]) == "1-3,8080,8082-8083"
    assert format_ports([]) == ""


async def test_open_ports_are_told_with_their_banner() -> None:
    async with greeting(b"SSH-2.0-x\r\n") as ssh, greeting(b"\xff\x00220 ftp") as ftp:
        closed = free_port()
        ports = [ssh, ftp, closed]
        records, done = await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports=ports)

    found = {record["port"]: (record["banner"], record["tls"]) for record in records}
    assert found == {ssh: ("SSH-2.0-x", False), ftp: ("\ufffd\x00220 ftp", False)}
    assert (done.complete, done.reachable) == (True, True)
    assert done.coverage == {"ports": format_ports(sorted(ports)), "protocol": "tcp", "address": "127.0.0.1"}


async def test_silent_ports_are_tried_for_tls(tmp_path: Path) -> None:
    async with serve_http(lambda _: page("x"), tls=server_context(tmp_path)) as secure:
        target = {"host": "app.test", "address": "127.0.0.1"}
        records, _ = await run_job(portprobe.run_job, target, ports=[secure.port])

    assert [(record["banner"], record["tls"]) for record in records] == [(None, True)]
    assert secure.server_names == ["app.test"]


async def test_a_silent_port_without_tls_is_open_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portprobe, "BANNER_S", 0.05)
    monkeypatch.setattr(portprobe, "HANDSHAKE_S", 0.05)
    async with greeting(b"") as port:
        records, _ = await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports=str(port))

    assert [(record["port"], record["banner"], record["tls"]) for record in records] == [(port, None, False)]


async def test_a_host_with_closed_ports_is_an_empty_result_that_says_nothing() -> None:
    records, done = await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports=[free_port()])

    assert (records, done.complete, done.reachable) == ([], True, False)


async def test_ipv6_is_scanned() -> None:
    async with greeting(b"hello", host="::1") as port:
        records, _ = await run_job(portprobe.run_job, {"host": "::1"}, ports=[port])

    assert [(record["address"], record["banner"]) for record in records] == [("::1", "hello")]


async def test_names_are_resolved_and_a_missing_one_is_an_empty_result() -> None:
    zone = {"www.test": {"CNAME": ["host.test."]}, "host.test": {"A": ["127.0.0.1"]}}
    async with serve_dns(zone) as dns, greeting(b"hello") as port:
        records, _ = await run_job(
            portprobe.run_job, {"host": "www.test"}, ports=[port], resolver=dns.address
        )
        missing = await run_job(portprobe.run_job, {"host": "gone.test"}, ports=[port], resolver=dns.address)
        dns.failing.add("broken.test")
        with pytest.raises(NoVerdict):
            await run_job(portprobe.run_job, {"host": "broken.test"}, ports=[port], resolver=dns.address)

    assert [record["address"] for record in records] == ["127.0.0.1"]
    assert (missing[0], missing[1].reachable, missing[1].coverage.get("address")) == ([], False, None)


async def test_no_more_connections_are_open_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_open = most_open = 0

    class Counting(Egress):
        async def connect(self, address: str, port: int, timeout_s: float = 1.0) -> socket.socket:
            nonlocal now_open, most_open
            now_open += 1
            most_open = max(most_open, now_open)
            await asyncio.sleep(0)
            now_open -= 1
            raise ConnectionRefusedError

    monkeypatch.setattr(portprobe, "Egress", Counting)
    await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports="1-500", concurrency=7)

    assert most_open == 7


async def test_a_lack_of_descriptors_delays_a_port_and_does_not_close_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0

    class Full(Egress):
        async def connect(self, address: str, port: int, timeout_s: float = 1.0) -> socket.socket:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return await super().connect(address, port, timeout_s)

    monkeypatch.setattr(portprobe, "Egress", Full)
    async with greeting(b"hello") as port:
        records, _ = await run_job(portprobe.run_job, {"host": "127.0.0.1"}, ports=[port])

    assert [record["banner"] for record in records] == ["hello"]


async def test_an_address_that_may_not_be_contacted_is_refused() -> None:
    with pytest.raises(Refused):
        await run_job(portprobe.run_job, {"host": "x.test", "address": "10.0.0.1"}, ports=[80])
    with pytest.raises(Refused):
        await run_job(portprobe.run_job, {"host": "127.0.0.1"}, allow=[], ports=[80])
