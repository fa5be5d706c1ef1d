"""Adapters of foreign programs: what is started, what may stand in a step's config, what output means."""

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.definitions import parse_definition
from runlane.errors import Invalid
from runlane.jobs import Outcome
from runlane.scan.pins import Refusal, pin
from runlane.scan.wire import ClaimedJob
from runlane.tools import TOOLS, Category, Shape, parse_records, screenshot
from runlane.tools.adapters import (
    ADAPTERS,
    chromium,
    config_faults,
    httpx,
    katana,
    naabu,
    nmap,
    nuclei,
    subfinder,
)
from runlane.tools.adapters.adapter import Command, Each, Ended, Found, Many, Raw, ToolJob, Workplace
from runlane.tools.adapters.jobs import BadTarget, read_job
from runlane.tools.adapters.options import BadOption, Options, Ports, faults, read_options
from runlane.tools.records import MalformedRecord

APP = ToolJob("j1", "app.lab.test", "127.7.0.11", 18080, "http://app.lab.test:18080/", False)
SIX = ToolJob("j2", "::1", "::1", 8443, "https://[::1]:8443/", True)
PLACE = Workplace("/private")
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1280, 800) + b"\x08\x06\x00\x00\x00"

NMAP = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE nmaprun>
<?xml-stylesheet href="file:///usr/bin/../share/nmap/nmap.xsl" type="text/xsl"?>
<nmaprun scanner="nmap" args="nmap -oX - 127.7.0.11" start="1796060024" version="7.93">
<scaninfo type="connect" protocol="tcp" numservices="3" services="12222,18080,18443"/>
<taskprogress task="NSE" time="1796060025" percent="0.00"/>
<host starttime="1796060025" endtime="1796060029"><status state="up" reason="user-set" reason_ttl="0"/>
<address addr="{address}" addrtype="{kind}"/>
<hostnames>
</hostnames>
<ports><extraports state="closed" count="1"><extrareasons reason="conn-refused" count="1"/></extraports>
<port protocol="tcp" portid="12222"><state state="open" reason="syn-ack" reason_ttl="0"/><service name="ssh" \
method="table" conf="3"/><script id="banner" output="SSH-2.0-OpenSSH_9.6"/></port>
<port protocol="tcp" portid="18443"><state state="open" reason="syn-ack" reason_ttl="0"/>\
<service name="https" tunnel="ssl" method="probed" conf="10"/></port>
<port protocol="tcp" portid="18444"><state state="filtered" reason="no-response" reason_ttl="0"/></port>
</ports>
</host>
<runstats><finished time="1796060029" elapsed="4.34" exit="success"/><hosts up="1" down="0" total="1"/>
</runstats>
</nmaprun>
"""


def read_nmap(text: str, address: str = "127.7.0.11") -> tuple[list[Raw], list[str], nmap.XmlReader]:
    reader = nmap.XmlReader(address, "12222,18080,18443")
    found: list[Raw] = []
    bad: list[str] = []
    for line in text.encode().split(b"\n"):
        try:
            found.extend(reader.feed(line))
        except MalformedRecord as error:
            bad.append(error.reason)
    return found, bad, reader


def ports_of(found: Iterable[Raw]) -> list[object]:
    return [record["port"] for record in found]


def is_readable(category: Category, *raws: Raw) -> bool:
    return parse_records(category, [json.loads(json.dumps(dict(raw))) for raw in raws]).quarantined == 0


def first_command(name: str, job: ToolJob = APP, options: Options | None = None) -> Command:
    way = ADAPTERS[name].way
    chosen = options or Options()
    match way:
        case Each(stages):
            return stages[0](job, chosen, PLACE)[0]
        case Many():
            return way.command([job], chosen, PLACE)


def found(value: Found | None) -> Found:
    assert value is not None
    return value


def test_every_tool_that_is_no_stream_has_an_adapter_in_its_shape() -> None:
    shapes = {name: tool.shape for name, tool in TOOLS.items() if tool.shape is not Shape.STREAM}

    assert set(shapes) == set(ADAPTERS)
    assert {name for name, shape in shapes.items() if shape is Shape.EACH} == {
        name for name, adapter in ADAPTERS.items() if isinstance(adapter.way, Each)
    }


@pytest.mark.parametrize("name", sorted(ADAPTERS))
@pytest.mark.parametrize("job", [APP, SIX], ids=["name", "ipv6"])
def test_values_from_outside_stand_behind_the_options_or_on_standard_input(name: str, job: ToolJob) -> None:
    command = first_command(name, job)

    assert command.argv[0] == ADAPTERS[name].programs[0].name
    assert all(isinstance(argument, str) and argument for argument in command.argv)
    tail = command.argv[command.argv.index("--") + 1 :] if "--" in command.argv else ()
    outside = {job.host, job.address, job.url}
    plain = [argument for argument in command.argv if argument in outside]
    assert list(tail) == plain


def test_ipv6_is_told_to_each_program_in_its_own_notation() -> None:
    assert first_command("nmap", SIX).argv[-5:] == (
        "-6",
        "-p",
        first_command("nmap", SIX).argv[-3],
        "--",
        "::1",
    )
    assert first_command("naabu", SIX).stdin == b"::1\n"
    assert first_command("httpx", SIX).stdin == b"https://[::1]:8443\n"
    assert first_command("nuclei", SIX).stdin == b"https://[::1]:8443/\n"
    assert "--host-resolver-rules=MAP ::1 [::1],MAP * ~NOTFOUND" in first_command("screenshot", SIX).argv


@pytest.mark.parametrize(
    "spec",
    [
        {"host": "-oN/etc/cron.d/x"},
        {"host": "a.test --script=x"},
        {"host": "a.test\n--script"},
        {"host": "a.test", "address": "127.0.0.1 -oX"},
        {"host": "a.test", "address": "-iL"},
        {"host": "a.test", "port": "80"},
        {"host": "a.test", "port": 0},
        {"host": "a.test", "url": "file:///etc/passwd"},
        {"host": "a.test", "url": "http://other.test/"},
        {"host": "a.test", "url": "http://u:p@a.test/"},
        {"host": "a.test", "url": "--load-extension=/x"},
        {},
    ],
)
def test_target_that_is_no_target_never_becomes_an_argument(spec: Mapping[str, Any]) -> None:
    with pytest.raises(BadTarget):
        read_job("j", spec)


@given(st.text(max_size=40))
def test_whatever_a_host_is_called_no_argument_begins_with_it_unless_it_is_a_name(text: str) -> None:
    try:
        job = read_job("j", {"host": text, "address": "192.0.2.7", "port": 80, "url": f"http://{text}/"})
    except BadTarget:
        return

    assert not job.host.startswith("-")
    assert not any(character.isspace() or character in "\x00,;'\"$`" for character in job.host)


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_options_are_an_allow_list(name: str) -> None:
    schema = ADAPTERS[name].schema

    assert faults(schema, {"allow": ["127.0.0.0/8"], "timeout_s": 5, "resolver": "127.0.0.1:53"}) == {}
    for option in ("script", "-oX", "templates", "proxy", "args", "headers"):
        assert option in config_faults(name, {option: "x"})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("nmap", {"ports": "80;id"}),
        ("nmap", {"ports": []}),
        ("nmap", {"timing": "4"}),
        ("nmap", {"timing": 9}),
        ("nmap", {"banners": "yes"}),
        ("nuclei", {"tags": ["../x"]}),
        ("nuclei", {"tags": ["-t"]}),
        ("nuclei", {"tags": "cve"}),
        ("nuclei", {"severity": ["terrible"]}),
        ("katana", {"depth": True}),
        ("screenshot", {"width": 1}),
        ("httpx", {"resolver": "dns.example.com"}),
        ("httpx", {"resolver": "127.0.0.1:99999"}),
        ("httpx", {"allow": ["10.0.0.0/99"]}),
        ("httpx", {"timeout_s": -1}),
    ],
)
def test_option_of_the_wrong_type_is_refused_when_the_definition_is_read(
    name: str, config: dict[str, Any]
) -> None:
    document = {"name": "d", "jobs": {"one": {"run": name, "config": config}}}

    with pytest.raises(Invalid) as refused:
        parse_definition(document)

    assert refused.value.code == "definition.invalid"
    assert list(refused.value.fields) == [f"jobs.one.config.{next(iter(config))}"]
    with pytest.raises(BadOption, match=f"^option {next(iter(config))}: "):
        read_options(ADAPTERS[name].schema, config)


def test_options_for_all_steps_are_laid_over_those_that_take_them() -> None:
    document = {"name": "d", "jobs": {"ports": {"run": "nmap"}, "names": {"run": "dnsprobe"}}}

    laid = parse_definition(document).with_config(
        {"*": {"words": ["a"], "resolver": "127.0.0.1:53"}, "ports": {"ports": "80"}}
    )

    assert [step.config for step in laid.steps] == [
        {"resolver": "127.0.0.1:53", "ports": "80"},
        {"words": ["a"], "resolver": "127.0.0.1:53"},
    ]
    with pytest.raises(Invalid) as refused:
        parse_definition(document).with_config({"ports": {"ports": "x"}})
    assert list(refused.value.fields) == ["config.ports.ports"]


def test_dns_server_that_may_not_be_contacted_is_refused() -> None:
    with pytest.raises(BadOption, match="resolver"):
        read_options({}, {"resolver": "127.0.0.1:53"})
    assert read_options({}, {"resolver": "127.0.0.1:53", "allow": ["127.0.0.0/8"]}).resolver == "127.0.0.1:53"


def test_excluded_ports_are_not_told_to_a_program() -> None:
    options = read_options({"ports": Ports()}, {"ports": "21-23", "deny": [":22", ".test"]})

    assert options.ports("ports") == [21, 23]
    with pytest.raises(BadOption, match="option deny"):
        read_options({}, {"deny": ["not a name"]})
    with pytest.raises(BadOption, match="resolver"):
        read_options({}, {"resolver": "8.8.8.8:53", "deny": ["8.8.8.0/24"]})


@pytest.mark.parametrize(
    "deny", [{"options": [".test"]}, {"options": ["127.0.0.1/32"]}, {"target": [":80"]}, {"target": ["?"]}]
)
async def test_no_program_is_started_at_what_is_excluded(deny: dict[str, list[str]]) -> None:
    target = {"host": "a.test", "address": "127.0.0.1", "port": 80, "deny": deny.get("target", [])}
    options = read_options({}, {"allow": ["127.0.0.0/8"], "deny": deny.get("options", [])})

    refused = await pin(ClaimedJob("job", 1, target), ADAPTERS["httpx"], options)

    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.FATAL


def test_nmap_document_is_read_port_by_port() -> None:
    records, bad, reader = read_nmap(NMAP.format(address="127.7.0.11", kind="ipv4"))

    assert bad == []
    assert records == [
        {
            "port": 12222,
            "protocol": "tcp",
            "address": "127.7.0.11",
            "banner": "SSH-2.0-OpenSSH_9.6",
            "tls": None,
        },
        {"port": 18443, "protocol": "tcp", "address": "127.7.0.11", "banner": None, "tls": True},
    ]
    assert is_readable(Category.PORTS_SCANNER, *records)
    conclusion = reader.conclude(Ended(0, ""))
    assert (conclusion.complete, conclusion.failure) == (True, None)
    assert conclusion.coverage == {"ports": "12222,18080,18443", "protocol": "tcp", "address": "127.7.0.11"}


def test_nmap_document_of_an_ipv6_host_is_read() -> None:
    records, bad, _ = read_nmap(NMAP.format(address="0:0:0:0:0:0:0:1", kind="ipv6"), "::1")

    assert bad == []
    assert {record["address"] for record in records} == {"::1"}
    assert is_readable(Category.PORTS_SCANNER, *records)


def test_cut_nmap_document_keeps_the_ports_before_the_cut() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4")

    records, bad, reader = read_nmap(text[: text.index('<port protocol="tcp" portid="18443"')])

    assert (ports_of(records), bad) == ([12222], [])
    assert reader.conclude(Ended(0, "")).failure == "the document has no end"


def test_bad_port_of_an_nmap_document_costs_itself_only() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4").replace('portid="12222"', 'portid="99999999"')

    records, bad, reader = read_nmap(text)

    assert (ports_of(records), len(bad)) == ([18443], 1)
    assert not reader.conclude(Ended(0, "")).failure


def test_nmap_document_of_another_host_brings_nothing() -> None:
    records, bad, _ = read_nmap(NMAP.format(address="127.7.0.12", kind="ipv4"))

    assert records == []
    assert bad[0] == "a port of another address than was asked for"


def test_entities_and_deep_nesting_of_an_nmap_document_are_refused() -> None:
    bomb = NMAP.format(address="127.7.0.11", kind="ipv4").replace(
        "<!DOCTYPE nmaprun>", '<!DOCTYPE nmaprun [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    )
    deep = f"<nmaprun>{'<host>' * 50}"

    assert read_nmap(bomb)[:2] == ([], ["the XML declares entities"])
    assert read_nmap(deep)[:2] == ([], ["the XML is nested too deeply"])


def test_nmap_scan_that_gave_up_on_the_host_is_incomplete() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4").replace("<host ", '<host timedout="true" ')

    conclusion = read_nmap(text)[2].conclude(Ended(0, ""))

    assert (conclusion.complete, conclusion.note) == (False, "the host took too long")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_nmap(data: bytes) -> None:
    read_nmap(NMAP.format(address="127.7.0.11", kind="ipv4")[:700] + data.decode("latin-1"))


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
