"""Readers of records, one for each category."""

from datetime import UTC, datetime
from typing import Any

import pytest

from runlane.tools import (
    CATEGORIES,
    TOOLS,
    Category,
    MalformedRecord,
    http_probe,
    parse_records,
    ports_scanner,
    subdomains,
    url_discovery,
    vulnerabilities,
)
from runlane.tools.records import digest

FINDING: dict[str, Any] = {
    "check": "exposed-git",
    "name": "Exposed .git directory",
    "severity": "high",
    "url": "http://App.lab.test:8080/.git/HEAD",
    "host": "elsewhere.test",
    "port": 1,
    "description": "d",
    "evidence": "e" * 600,
    "remediation": None,
    "references": ["https://example.com/"],
    "cwe": ["CWE-527"],
}


def test_every_category_has_a_reader_and_every_tool_a_category() -> None:
    assert set(CATEGORIES) == set(Category)
    assert {tool.category for tool in TOOLS.values()} == set(Category)
    assert all(name == tool.name for name, tool in TOOLS.items())


def test_subdomain_record_is_sorted_without_repetition_and_unknown_types() -> None:
    record = subdomains.parse(
        {
            "name": "App.Lab.test.",
            "records": {"A": ["127.7.0.3", "127.7.0.2", "127.7.0.3"], "HINFO": ["x"], "MX": []},
        }
    )

    assert record.name == "app.lab.test"
    assert record.records == {"A": ("127.7.0.2", "127.7.0.3")}
    assert record.addresses == ("127.7.0.2", "127.7.0.3")


def test_port_record_is_read() -> None:
    raw = {"port": 22, "protocol": "tcp", "address": "::ffff:127.7.0.3", "banner": "SSH-2.0-x", "tls": None}

    assert ports_scanner.parse(raw) == ports_scanner.PortRecord(22, "tcp", "127.7.0.3", "SSH-2.0-x", None)


@pytest.mark.parametrize(
    "change",
    [
        {"port": 0},
        {"port": 65536},
        {"port": True},
        {"port": "22"},
        {"protocol": "icmp"},
        {"address": "a.test"},
        {"tls": 1},
    ],
)
def test_port_record_with_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    raw = {"port": 22, "protocol": "tcp", "address": "127.7.0.3", "banner": None, "tls": None}

    with pytest.raises(MalformedRecord, match=next(iter(change))):
        ports_scanner.parse(raw | change)


def test_http_record_takes_the_place_from_the_url_and_times_as_utc() -> None:
    record = http_probe.parse(
        {
            "url": "https://App.lab.test:8443",
            "scheme": "http",
            "port": 1,
            "status": 200,
            "title": "T",
            "headers": {"Server": "x"},
            "redirects": [{"url": "https://app.lab.test:8443/", "status": 302}],
            "technologies": [{"name": "nginx", "version": "1.2"}],
            "body_sha256": "ab" * 32,
            "tls": {
                "not_after": "2020-01-01T02:00:00+02:00",
                "not_before": "rubbish",
                "expired": True,
                "san": ["a"],
            },
        }
    )

    assert (record.url, record.scheme, record.port) == ("https://app.lab.test:8443/", "https", 8443)
    assert record.key == digest("https://app.lab.test:8443/")
    assert record.headers == {"server": "x"}
    assert record.body_sha256 == b"\xab" * 32
    assert record.tls is not None
    assert record.tls.not_after == datetime(2020, 1, 1, tzinfo=UTC)
    assert record.tls.not_before is None
    assert record.tls.expired
    assert not record.tls.self_signed


def test_url_key_is_that_of_the_normalised_url() -> None:
    record = url_discovery.parse(
        {"url": "HTTP://a.test:80/x#y", "status": None, "depth": 1, "source": "link"}
    )

    assert record.url == "http://a.test/x"
    assert record.key == digest("http://a.test/x")


def test_finding_identity_includes_where_it_was() -> None:
    first = vulnerabilities.parse(FINDING)

    assert (first.host, first.port) == ("app.lab.test", 8080)
    assert first.evidence == "e" * 500
    assert first.key == vulnerabilities.parse(FINDING | {"evidence": "other", "severity": "low"}).key
    assert first.key != vulnerabilities.parse(FINDING | {"url": "http://app.lab.test:8081/.git/HEAD"}).key
    assert first.key != vulnerabilities.parse(FINDING | {"url": "http://app.lab.test:8080/x/.git/HEAD"}).key


def test_malformed_records_are_quarantined_with_a_sample_and_the_rest_is_kept() -> None:
    raws = [FINDING, *[FINDING | {"severity": f"bad{n}"} for n in range(7)], None, FINDING | {"cwe": ["x"]}]

    parsed = parse_records(Category.VULNERABILITIES, raws)

    assert len(parsed.records) == 1
    assert parsed.quarantined == 9
    assert len(parsed.sample) == 5
    assert parsed.sample[0].startswith("severity: one of critical")


def test_bench_has_no_records() -> None:
    assert parse_records(Category.BENCH, []).records == ()
    assert parse_records(Category.BENCH, [{}]).quarantined == 1


def test_the_reason_of_a_malformed_record_is_short_and_storable() -> None:
    assert len(MalformedRecord("x" * 1_000).reason) == 200
    assert MalformedRecord("a\x00").reason == "a\ufffd"
