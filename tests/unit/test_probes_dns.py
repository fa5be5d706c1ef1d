"""The search for names: word list, wildcards, aliases, and servers that fail."""

import socket
from typing import Any

import dns.message
import dns.rcode
import dns.rrset
import pytest

from runlane.probes import dnsprobe, transfer
from runlane.probes.job import BadInput, DoneOutcome, Refused
from runlane.probes.resolver import NoVerdict
from runlane.probes.words import DEFAULT_WORDS
from runlane.tools.hosts import normalise_name
from tests.unit.probe_servers import DnsServer, run_job, serve_dns

SOA = "ns1.lab.test. host.lab.test. 1 3600 600 86400 60"
ZONE = {
    "lab.test": {"SOA": [SOA], "NS": ["ns1.lab.test.", "ns.elsewhere.test."], "MX": ["10 smtp-x7.lab.test."]},
    "ns1.lab.test": {"A": ["127.0.0.1"]},
    "www.lab.test": {"CNAME": ["web-x7.lab.test."]},
    "web-x7.lab.test": {"A": ["127.0.0.2"], "AAAA": ["::1"]},
    "smtp-x7.lab.test": {"A": ["127.0.0.3"], "TXT": ['"v=spf1 -all"']},
    "mail.lab.test": {"CNAME": ["mail.elsewhere.test."]},
    "hidden-x7.lab.test": {"A": ["127.0.0.4"]},
}


async def survey(server: DnsServer, host: str = "lab.test", **options: Any) -> tuple[dict[str, Any], Any]:
    target = {"host": host, "kind": "domain"}
    records, done = await run_job(dnsprobe.run_job, target, resolver=server.address, **options)
    names = [str(record["name"]) for record in records]
    assert len(names) == len(set(names))
    return {str(record["name"]): record["records"] for record in records}, done


def rrsets(*records: str) -> list[dns.rrset.RRset]:
    split = (record.split(" ", 2) for record in records)
    return [dns.rrset.from_text(f"{name}.", 60, "IN", kind, text) for name, kind, text in split]


def message(query: dns.message.Message, *records: str) -> bytes:
    response = dns.message.make_response(query)
    response.answer = rrsets(*records)
    return response.to_wire()


async def test_word_list_finds_names_and_what_their_records_point_to() -> None:
    async with serve_dns(ZONE) as server:
        found, done = await survey(server)

    assert found == {
        "lab.test": {
            "MX": ["10 smtp-x7.lab.test."],
            "NS": ["ns.elsewhere.test.", "ns1.lab.test."],
            "SOA": [SOA],
        },
        "ns1.lab.test": {"A": ["127.0.0.1"]},
        "www.lab.test": {"CNAME": ["web-x7.lab.test."]},
        "web-x7.lab.test": {"A": ["127.0.0.2"], "AAAA": ["::1"]},
        "smtp-x7.lab.test": {"A": ["127.0.0.3"], "TXT": ['"v=spf1 -all"']},
        "mail.lab.test": {"CNAME": ["mail.elsewhere.test."]},
    }
    assert (done.outcome, done.complete, done.reachable) == (DoneOutcome.COMPLETED, True, True)
    assert done.coverage == {"zone": "lab.test", "method": ["wordlist"]}


async def test_an_own_word_list_is_used_instead() -> None:
    async with serve_dns(ZONE) as server:
        found, _ = await survey(server, wordlist=["hidden-x7", "nothing"])

    assert {"hidden-x7.lab.test", "lab.test"} < set(found)
    assert "www.lab.test" not in found


async def test_a_wildcard_does_not_yield_every_word() -> None:
    zone = {
        "lab.test": {"SOA": [SOA]},
        "*": {"A": ["127.0.0.9"], "TXT": ['"any"']},
        "www.lab.test": {"A": ["127.0.0.2"]},
    }
    async with serve_dns(zone) as server:
        found, _ = await survey(server)

    assert set(found) == {"lab.test", "www.lab.test"}


async def test_a_wildcard_alias_does_not_yield_every_word() -> None:
    async with serve_dns({"lab.test": {"SOA": [SOA]}, "*": {"CNAME": ["x.elsewhere.test."]}}) as server:
        found, _ = await survey(server)

    assert set(found) == {"lab.test"}


async def test_a_domain_that_does_not_exist_is_an_empty_result() -> None:
    async with serve_dns({}) as server:
        found, done = await survey(server, "gone.test")

    assert (found, done.outcome, done.complete) == ({}, DoneOutcome.COMPLETED, True)


async def test_a_name_without_verdict_makes_the_result_incomplete() -> None:
    async with serve_dns(ZONE) as server:
        server.failing.add("www.lab.test")
        found, done = await survey(server)

    assert "www.lab.test" not in found
    assert "mail.lab.test" in found
    assert not done.complete


async def test_a_zone_without_verdict_is_an_error() -> None:
    async with serve_dns(ZONE) as server:
        server.failing.add("lab.test")
        with pytest.raises(NoVerdict):
            await survey(server)


async def test_a_transfer_gives_the_whole_zone_and_spares_the_word_list() -> None:
    zone = {**ZONE, "dev.lab.test": {"SOA": [SOA], "NS": ["ns1.lab.test."], "A": ["127.0.0.7"]}}
    async with serve_dns(zone) as server:
        server.transfer = lambda query: [
            message(query, f"lab.test SOA {SOA}", "lab.test NS ns1.lab.test."),
            message(
                query,
                "vault.lab.test A 127.0.0.8",
                "*.lab.test A 127.0.0.9",
                "dev.lab.test NS ns1.lab.test.",
                "stray.elsewhere.test A 127.0.0.10",
                "a\\.b.lab.test A 127.0.0.11",
                "_sip._tcp.lab.test TXT x",
                f"lab.test SOA {SOA}",
            ),
        ]
        found, done = await survey(server)

    assert found == {
        "lab.test": {"NS": ["ns1.lab.test."], "SOA": [SOA]},
        "vault.lab.test": {"A": ["127.0.0.8"]},
        "dev.lab.test": {"A": ["127.0.0.7"], "NS": ["ns1.lab.test."], "SOA": [SOA]},
        "_sip._tcp.lab.test": {"TXT": ['"x"']},
        "ns1.lab.test": {"A": ["127.0.0.1"]},
    }
    assert (done.coverage["method"], done.complete) == (["axfr"], True)
    assert "www.lab.test" not in server.questions


async def test_a_transfer_that_breaks_off_is_completed_by_the_word_list() -> None:
    async with serve_dns(ZONE) as server:
        server.transfer = lambda query: [
            message(query, f"lab.test SOA {SOA}", "vault.lab.test A 127.0.0.8"),
            b"rubbish",
        ]
        found, done = await survey(server)

    assert {"vault.lab.test", "www.lab.test"} <= set(found)
    assert done.coverage["method"] == ["axfr", "wordlist"]


async def test_an_endless_transfer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_RECORDS", 500)

    def pour(query: dns.message.Message) -> list[bytes]:
        first = message(query, f"lab.test SOA {SOA}")
        return [first, *(message(query, f"n{n}.lab.test A 127.0.0.1") for n in range(5_000))]

    async with serve_dns(ZONE) as server:
        server.transfer = pour
        host, _, port = server.address.rpartition(":")
        sock = socket.create_connection((host, int(port)))
        sock.setblocking(False)
        copy = await transfer.transfer_zone(sock, "lab.test")

    assert copy is not None
    assert not copy.is_complete
    assert 0 < len(copy.names) <= 500


async def test_a_resolver_that_may_not_be_contacted_is_asked_nothing() -> None:
    async with serve_dns(ZONE) as server:
        with pytest.raises(Refused):
            await survey(server, allow=["127.0.0.77/32"])

    assert server.questions == {}


@pytest.mark.parametrize(("host", "kind"), [("127.0.0.1", "ip"), ("::1", "ip"), ("192.0.2.0/28", "cidr")])
async def test_under_an_address_or_a_network_there_is_nothing_to_find(host: str, kind: str) -> None:
    records, done = await run_job(dnsprobe.run_job, {"host": host, "kind": kind})

    assert records == []
    assert done.outcome is DoneOutcome.COMPLETED


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.0/8", "a b", "-x"])
async def test_what_is_no_domain_is_bad_input(host: str) -> None:
    with pytest.raises(BadInput):
        await run_job(dnsprobe.run_job, {"host": host, "kind": "domain"})


@pytest.mark.parametrize("words", ["www", [1], ["a b"], ["x"] * 10_001])
async def test_a_word_list_that_cannot_be_read_is_bad_input(words: Any) -> None:
    async with serve_dns(ZONE) as server:
        with pytest.raises(BadInput):
            await survey(server, wordlist=words)


def test_default_words_are_distinct_labels() -> None:
    assert len(set(DEFAULT_WORDS)) == len(DEFAULT_WORDS) >= 150
    assert [normalise_name(word) for word in DEFAULT_WORDS] == list(DEFAULT_WORDS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dev.lab.test", True), ("a.dev.lab.test", True), ("xdev.lab.test", False), ("lab.test", False)],
)
def test_delegated_names_are_the_cut_and_all_below(name: str, expected: bool) -> None:
    assert transfer.is_below_any(name, frozenset({"dev.lab.test"})) is expected
