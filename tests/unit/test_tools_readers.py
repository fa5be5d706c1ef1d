"""What lines and pictures of foreign programs mean, and that no line breaks a reader."""

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.tools import Category, parse_records, screenshot
from runlane.tools.adapters import chromium, httpx, katana, naabu, nuclei, subfinder
from runlane.tools.adapters.adapter import Ended, Found, ToolJob, Workplace
from runlane.tools.adapters.options import Options
from runlane.tools.records import MalformedRecord
from tests.unit.program_jobs import APP, PLACE, first_command, is_readable

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1280, 800) + b"\x08\x06\x00\x00\x00"


def found(value: Found | None) -> Found:
    assert value is not None
    return value


def test_naabu_line_is_read() -> None:
    line = b'{"host":"app.lab.test","ip":"127.7.0.11","timestamp":"t","port":443,"protocol":"tcp","tls":true}'

    read = naabu.read(line)

    assert read == Found(
        "127.7.0.11", {"port": 443, "protocol": "tcp", "address": "127.7.0.11", "banner": None, "tls": True}
    )
    assert naabu.read(b'{"ip":"0:0::1","port":22}').key == "::1"
    assert is_readable(Category.PORTS_SCANNER, read.record)


def test_httpx_line_is_read() -> None:
    line = json.dumps(
        {
            "timestamp": "2026-11-30T10:00:00Z",
            "port": "8443",
            "url": "https://[::1]:8443",
            "input": "https://[::1]:8443",
            "title": "Home",
            "scheme": "https",
            "webserver": "nginx",
            "content_type": "text/html",
            "content_length": 55,
            "status_code": 200,
            "time": "12.5ms",
            "tech": ["nginx:1.24", "React"],
            "header": {"content_type": "text/html", "x_frame_options": ["DENY"]},
            "hash": {"body_sha256": "ab" * 32},
            "tls": {
                "tls_version": "tls13",
                "cipher": "TLS_AES_128_GCM_SHA256",
                "subject_cn": "lab.test",
                "subject_an": ["lab.test"],
                "not_after": "2027-01-01T00:00:00Z",
                "fingerprint_hash": {"sha256": "cd" * 32},
                "self_signed": True,
            },
            "failed": False,
        }
    ).encode()

    read = found(httpx.read(line))

    assert read.key == "https://[::1]:8443"
    assert read.record["response_ms"] == 12
    assert read.record["technologies"] == [
        {"name": "nginx", "version": "1.24"},
        {"name": "React", "version": None},
    ]
    assert read.record["headers"] == {"content-type": "text/html", "x-frame-options": "DENY"}
    parsed = parse_records(Category.HTTP_PROBE, [dict(read.record)])
    assert (parsed.quarantined, len(parsed.records)) == (0, 1)
    assert httpx.read(b'{"failed":true,"input":"x"}') is None


@pytest.mark.parametrize(
    ("text", "ms"), [("1.5s", 1500), ("980µs", 1), ("1m2s", 62000), ("", None), ("x", None)]
)
def test_durations_of_httpx_are_read(text: str, ms: int | None) -> None:
    line = json.dumps({"url": "http://a.test", "status_code": 200, "input": "a", "time": text}).encode()

    assert found(httpx.read(line)).record["response_ms"] == ms


def test_nuclei_line_is_read() -> None:
    line = json.dumps(
        {
            "template-id": "Git-Config",
            "info": {
                "name": "Git configuration",
                "severity": "medium",
                "reference": ["https://example.com/"],
                "classification": {"cwe-id": ["cwe-200", "nonsense"]},
                "remediation": "Remove it.",
            },
            "matcher-name": "core section",
            "type": "http",
            "host": "app.lab.test",
            "url": "http://app.lab.test:18080",
            "matched-at": "http://app.lab.test:18080/.git/config",
            "extracted-results": ["[core]"],
            "matcher-status": True,
        }
    ).encode()

    read = found(nuclei.read(line))

    assert read.key == "http://app.lab.test:18080/"
    assert read.record["check"] == "git-config:core-section"
    assert read.record["cwe"] == ["CWE-200"]
    assert is_readable(Category.VULNERABILITIES, read.record)
    assert nuclei.read(line.replace(b'"matcher-status": true', b'"matcher-status": false')) is None
    assert nuclei.read(b'{"duration":"0:00:05","requests":"12"}') is None


def test_nuclei_match_without_a_url_is_placed_at_its_service() -> None:
    line = b'{"template-id":"ssl","info":{"name":"n","severity":"unknown"},"matched-at":"[::1]:8443","url":"https://[::1]:8443"}'

    read = found(nuclei.read(line))

    assert (read.key, read.record["severity"]) == ("https://[::1]:8443/", "info")


def test_katana_line_is_read() -> None:
    line = (
        b'{"timestamp":"t","request":{"method":"GET","endpoint":"http://app.lab.test:18080/login","tag":"form",'
        b'"attribute":"action","source":"http://app.lab.test:18080/"},"response":{"status_code":200,'
        b'"headers":{"content_type":"text/html"}}}'
    )

    read = katana.read(line)

    assert read == Found(
        "http://app.lab.test:18080/",
        {
            "url": "http://app.lab.test:18080/login",
            "status": 200,
            "content_type": "text/html",
            "depth": 1,
            "source": "form",
        },
    )
    assert is_readable(Category.URL_DISCOVERY, read.record)
    assert katana.read(b'{"request":{"endpoint":"http://[::1]:8443/"}}').record["source"] == "start"


def test_subfinder_hands_its_names_to_dnsx() -> None:
    job = ToolJob("j", "lab.test")
    command, names = subfinder.find_names(job, Options(), PLACE)
    first = names.feed(b'{"host":"App.lab.test","input":"lab.test","source":"crtsh"}')
    with pytest.raises(MalformedRecord):
        names.feed(b'{"host":"app.elsewhere.test"}')

    second, resolved = subfinder.resolve_names(job, Options(), Workplace("/p", tuple(first)))
    records = resolved.feed(
        b'{"host":"app.lab.test","ttl":60,"resolver":["127.0.0.1:53"],"a":["127.7.0.11"],"aaaa":["::1"],'
        b'"soa":[{"name":"lab.test","ns":"ns1.lab.test","mailbox":"h.lab.test","serial":1,"refresh":2,"retry":3,'
        b'"expire":4,"minttl":5}],"status_code":"NOERROR"}'
    )

    assert command.stdin == b"lab.test\n"
    assert second.stdin == b"app.lab.test\nlab.test\n"
    assert records == [
        {
            "name": "app.lab.test",
            "records": {
                "A": ["127.7.0.11"],
                "AAAA": ["::1"],
                "SOA": ["ns1.lab.test h.lab.test 1 2 3 4 5"],
            },
        }
    ]
    assert is_readable(Category.SUBDOMAINS, *records)
    assert resolved.feed(b'{"host":"gone.lab.test","status_code":"NOERROR"}') == []


HOSTILE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b'{"a":' * 3_000,
    b'{"ip":1,"url":{},"host":[],"request":7}',
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_are_malformed_and_nothing_else(line: bytes) -> None:
    for read in (naabu.read, httpx.read, nuclei.read, katana.read):
        with pytest.raises(MalformedRecord):
            read(line)


@given(
    st.dictionaries(
        st.text(max_size=12),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=20),
            lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_no_object_breaks_a_reader(values: dict[str, Any]) -> None:
    samples: list[dict[str, Any]] = [
        {"ip": "192.0.2.7", "port": 1},
        {"url": "http://a.test", "status_code": 200, "input": "a", "tls": {}, "hash": {}},
        {"template-id": "x", "info": {"name": "n"}, "matched-at": "http://a.test/"},
        {"request": {"endpoint": "http://a.test/"}, "response": {}},
    ]
    for read, sample in zip((naabu.read, httpx.read, nuclei.read, katana.read), samples, strict=True):
        for text in (values, sample | values, sample | dict.fromkeys(sample, values)):
            try:
                result = read(json.dumps(text).encode())
            except MalformedRecord:
                continue
            assert result is None or isinstance(result.record, dict)


def test_browser_contacts_its_own_host_at_the_judged_address_and_nothing_else() -> None:
    command = first_command("screenshot")

    assert "--host-resolver-rules=MAP app.lab.test 127.7.0.11,MAP * ~NOTFOUND" in command.argv
    assert "--user-data-dir=/private/profile" in command.argv
    assert command.argv[-2:] == ("--", "http://app.lab.test:18080/")
    assert command.output == "page.png"


def test_picture_is_a_record_and_an_error_page_is_none() -> None:
    _, reader = chromium.take_picture(APP, Options(), PLACE)

    taken = reader.conclude(Ended(0, "", PNG))
    away = reader.conclude(Ended(1, "x: Page load failed: net::ERR_NAME_NOT_RESOLVED\n"))
    refused = reader.conclude(Ended(1, "x: Page load failed: net::ERR_CONNECTION_REFUSED\n"))

    assert parse_records(Category.SCREENSHOT, taken.records).quarantined == 0
    assert (away.complete, away.records, away.failure) == (True, (), None)
    assert refused.failure == "net::ERR_CONNECTION_REFUSED"
    assert reader.conclude(Ended(0, "", None)).failure == "exit code 0, no picture"


@pytest.mark.parametrize(
    "png",
    [
        None,
        "",
        "not base64!",
        base64.b64encode(b"GIF89a").decode(),
        base64.b64encode(PNG[:12]).decode(),
        base64.b64encode(PNG.replace(struct.pack(">I", 1280), struct.pack(">I", 2**31))).decode(),
        "A" * (screenshot.MAX_PNG_BYTES * 2),
    ],
)
def test_picture_that_is_none_is_malformed(png: object) -> None:
    with pytest.raises(MalformedRecord, match=r"^png: "):
        screenshot.parse({"url": "http://app.lab.test/", "png": png})


def test_large_picture_is_not_cut_on_its_way() -> None:
    png = PNG + b"x" * 300_000

    record = screenshot.parse({"url": "http://app.lab.test/", "png": base64.b64encode(png).decode()})

    assert (record.png, record.width, record.height) == (png, 1280, 800)
