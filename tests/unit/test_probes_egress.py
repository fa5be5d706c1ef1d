"""Where probes may connect to, whatever a name resolves to."""

import asyncio
import socket

import pytest

from runlane.probes.egress import Egress
from runlane.probes.job import BadInput, Options, ProbeTarget, Refused, parse_job
from runlane.probes.resolver import NoVerdict
from runlane.tools.clean import JsonValue
from tests.unit.probe_servers import LOOPBACK, DnsServer, serve_dns, serve_tcp

ZONE = {
    "inside.test": {"A": ["10.0.0.1", "169.254.169.254"]},
    "mixed.test": {"A": ["10.0.0.1", "127.0.0.9", "127.0.0.5"], "AAAA": ["::1"]},
    "alias.test": {"CNAME": ["mixed.test."]},
    "mapped.test": {"AAAA": ["::ffff:127.0.0.1", "64:ff9b::7f00:1"]},
    "empty.test": {"TXT": ["hello"]},
}


def egress(dns: DnsServer | None = None, allow: list[str] | None = None) -> Egress:
    resolver = None
    if dns is not None:
        host, _, port = dns.address.rpartition(":")
        resolver = (host, int(port))
    return Egress(Options(60.0, tuple(LOOPBACK if allow is None else allow), resolver))


def target(host: str, address: str | None = None) -> ProbeTarget:
    return ProbeTarget(host, "host", address)


async def test_only_addresses_that_may_be_contacted_are_resolved_to() -> None:
    async with serve_dns(ZONE) as dns:
        assert await egress(dns).resolve("mixed.test") == ("127.0.0.5", "127.0.0.9", "::1")
        assert await egress(dns).resolve("Alias.Test.") == ("127.0.0.5", "127.0.0.9", "::1")


async def test_a_name_that_only_leads_inside_is_refused() -> None:
    async with serve_dns(ZONE) as dns:
        with pytest.raises(Refused, match=r"inside\.test leads to 10\.0\.0\.1, 169\.254\.169\.254"):
            await egress(dns).resolve("inside.test")
        with pytest.raises(Refused):
            await egress(dns, []).resolve("mapped.test")


async def test_a_name_without_address_has_none_to_connect_to() -> None:
    async with serve_dns(ZONE) as dns:
        assert await egress(dns).resolve("empty.test") == ()
        assert await egress(dns).resolve("missing.test") == ()
        assert await egress(dns).address_of(target("missing.test")) is None


async def test_a_server_that_fails_gives_no_verdict() -> None:
    async with serve_dns(ZONE) as dns:
        dns.failing.add("mixed.test")
        with pytest.raises(NoVerdict):
            await egress(dns).resolve("mixed.test")


async def test_a_known_address_is_used_without_a_question_and_judged_all_the_same() -> None:
    async with serve_dns(ZONE) as dns:
        assert await egress(dns).address_of(target("inside.test", "127.0.0.3")) == "127.0.0.3"
        with pytest.raises(Refused):
            await egress(dns).address_of(target("mixed.test", "10.0.0.1"))
        with pytest.raises(BadInput):
            await egress(dns).address_of(target("mixed.test", "mixed.test"))
        assert not dns.questions


async def test_an_address_as_host_needs_no_resolver() -> None:
    assert await egress().resolve("::ffff:127.0.0.1") == ("127.0.0.1",)
    with pytest.raises(Refused):
        await egress().resolve("192.168.1.1")


def test_no_allow_list_opens_metadata() -> None:
    with pytest.raises(Refused):
        egress(allow=["0.0.0.0/0"]).permit("169.254.169.254")


async def test_connections_are_judged_again() -> None:
    with pytest.raises(Refused):
        await egress(allow=[]).connect("127.0.0.1", 80)


async def test_a_connection_goes_to_the_address_in_every_notation() -> None:
    async def say_hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")

    async with serve_tcp(say_hello, host="127.0.0.1") as port:
        with await egress().connect("::ffff:127.0.0.1", port) as sock:
            assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"hello"


async def test_a_closed_port_is_an_error_of_the_system() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await egress().connect("127.0.0.1", unused.getsockname()[1])


@pytest.mark.parametrize("resolver", ["169.254.169.254:53", "10.0.0.53:53", "127.0.0.1:25", "[::1]:53"])
def test_a_dns_server_that_a_definition_names_is_judged_like_any_other_host(resolver: str) -> None:
    line: dict[str, JsonValue] = {"target": {"host": "a.test"}, "options": {"resolver": resolver}}

    with pytest.raises(Refused, match=r"option resolver: .* may not be contacted"):
        parse_job("1", line, 60.0)


def test_a_dns_server_in_a_network_that_may_be_scanned_is_asked() -> None:
    options: JsonValue = {"resolver": "127.0.0.1:5353", "allow": ["127.0.0.0/8"]}

    job = parse_job("1", {"target": {"host": "a.test"}, "options": options}, 60.0)

    assert job.options.resolver == ("127.0.0.1", 5353)


async def test_excluded_names_addresses_and_ports_are_refused_at_every_door() -> None:
    def denying(*deny: str) -> Egress:
        host, _, port = dns.address.rpartition(":")
        return Egress(Options(60.0, tuple(LOOPBACK), (host, int(port)), deny=deny))

    async with serve_dns(ZONE) as dns:
        with pytest.raises(Refused, match=r"is excluded"):
            await denying(".test").resolve("Mixed.Test.")
        with pytest.raises(Refused, match="is excluded"):
            await denying("alias.test").address_of(target("alias.test", "127.0.0.5"))
        assert await denying("127.0.0.5/32", "::1/128").resolve("mixed.test") == ("127.0.0.9",)
        with pytest.raises(Refused):
            await denying("127.0.0.0/8").resolve("mapped.test")
    with pytest.raises(Refused, match="may not be contacted"):
        denying("127.0.0.0/8").permit("::ffff:127.0.0.1")
    with pytest.raises(Refused, match="port 22 is excluded"):
        await denying(":22").connect("127.0.0.1", 22)


def test_resolver_that_is_excluded_is_not_asked() -> None:
    options: JsonValue = {"resolver": "127.0.0.1:5353", "allow": ["127.0.0.0/8"], "deny": ["127.0.0.1/32"]}

    with pytest.raises(Refused):
        parse_job("1", {"target": {"host": "a.test"}, "options": options}, 60.0)


def test_exclusions_of_the_target_come_on_top_of_those_of_all() -> None:
    line: dict[str, JsonValue] = {
        "target": {"host": "a.test", "deny": [":22"]},
        "options": {"deny": ["10.0.0.0/8"]},
    }

    assert parse_job("1", line, 60.0).options.deny == ("10.0.0.0/8", ":22")
    with pytest.raises(BadInput):
        parse_job("1", {**line, "target": {"host": "a.test", "deny": ["?"]}}, 60.0)
