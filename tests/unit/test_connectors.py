"""Manifests of connectors: what one may say, what it makes, and everything that is refused."""

import re
from pathlib import Path

import orjson
import pytest

from runlane.connectors import Limits, Manifest, load_manifest, read_manifest
from runlane.connectors.limits import NUMBERS, WHOLES
from runlane.connectors.schema import manifest_schema
from runlane.errors import Invalid
from runlane.tools import FansOut, MalformedRecord, Shape, Toolset
from runlane.tools.adapters.adapter import Command, Each, Ended, Reader, ToolJob, Workplace
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import faults, read_options

DIGEST = f"sha256:{'0a' * 32}"

MANIFEST: dict[str, object] = {
    "slug": "nmap-image",
    "name": "nmap",
    "version": "7.93",
    "category": "ports_scanner",
    "fans_out": "assets",
    "image": "registry.example:5000/tools/nmap",
    "digest": DIGEST,
    "entrypoint": ["/usr/bin/nmap"],
    "argv": ["-n", "{ipv6}", "{option:banners}", "-T{option:timing}", "-p", "{ports}", "--", "{address}"],
    "ipv6": ["-6"],
    "input": "argv",
    "output": "nmap-xml",
    "network": "targets",
    "options": {
        "ports": {"type": "ports"},
        "timing": {"type": "whole", "low": 1, "high": 5, "default": 4},
        "banners": {"type": "flag", "default": True, "argv": ["--script", "banner"]},
        "order": {"type": "choice", "of": ["fast", "slow"], "default": "slow"},
    },
    "limits": {"memory_mb": 128, "wall_s": 60, "parallelism": 3, "max_batch": 6},
}

ECHO: dict[str, object] = {
    "slug": "echo",
    "name": "echo",
    "version": "1",
    "category": "subdomains",
    "fans_out": "targets",
    "image": "echo",
    "digest": DIGEST,
    "entrypoint": ["/echo"],
    "input": "stdin",
    "output": "records",
    "network": "none",
    "options": {"times": {"type": "whole", "low": 0, "high": 9, "default": 1}},
}


def faults_of(**changes: object) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        read_manifest({**MANIFEST, **changes})
    assert refused.value.code == "connector.invalid"
    return refused.value.fields


def start(manifest: Manifest, job: ToolJob, **config: object) -> tuple[Command, Reader]:
    way = manifest.adapter().way
    assert isinstance(way, Each)
    return way.stages[0](job, read_options(manifest.schema(), config), Workplace("/nowhere"))


def test_manifest_makes_a_tool_and_reads_the_same_again() -> None:
    manifest = read_manifest(MANIFEST)

    tool = manifest.tool()

    assert (tool.name, tool.toolset, tool.shape) == ("nmap-image", Toolset.CONTAINER, Shape.EACH)
    assert (tool.fans_out, tool.wall_s, tool.parallelism) == (FansOut.ASSETS, 60, 3)
    assert (tool.max_batch, tool.large_max_batch, tool.version) == (6, 6, "7.93")
    assert read_manifest(orjson.loads(orjson.dumps(manifest.as_json()))) == manifest


def test_values_of_a_job_stand_in_their_places() -> None:
    job = ToolJob("a", "host.test", "192.0.2.7")

    command, _ = start(read_manifest(MANIFEST), job, ports="80,443", banners=False)

    assert command.argv == ("/usr/bin/nmap", "-n", "-T4", "-p", "80,443", "--", "192.0.2.7")


def test_ipv6_and_flags_bring_their_own_arguments() -> None:
    job = ToolJob("a", "host.test", "2001:db8::7")

    command, _ = start(read_manifest(MANIFEST), job, ports=[22], timing=2)

    assert command.argv[1:] == ("-n", "-6", "--script", "banner", "-T2", "-p", "22", "--", "2001:db8::7")


def test_excluded_ports_are_left_out_and_none_left_is_no_scan() -> None:
    manifest = read_manifest(MANIFEST)
    job = ToolJob("a", "192.0.2.7", "192.0.2.7")

    command, _ = start(manifest, job, ports="22,80", deny=[":22"])

    assert "80" in command.argv
    with pytest.raises(BadTarget, match="every port is excluded"):
        start(manifest, job, ports="22", deny=[":22"])


def test_value_that_looks_like_an_option_is_never_an_argument() -> None:
    manifest = read_manifest({**MANIFEST, "argv": ["--target={host}"]})

    with pytest.raises(BadTarget, match="hyphen"):
        start(manifest, ToolJob("a", "-oN/etc/cron.d/x", "192.0.2.7"))


def test_options_of_a_step_are_checked_by_the_manifest() -> None:
    schema = read_manifest(MANIFEST).schema()

    found = faults(
        schema, {"timing": 9, "order": "sideways", "banners": "yes", "script": "evil", "ports": "1-2"}
    )

    assert set(found) == {"timing", "order", "banners", "script"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privileged", True),
        ("mounts", ["/:/host"]),
        ("volumes", {}),
        ("cap_add", ["NET_RAW"]),
        ("devices", ["/dev/kvm"]),
        ("user", "root"),
        ("env", {"A": "b"}),
        ("unheard-of", 1),
    ],
)
def test_container_cannot_ask_for_more_than_a_manifest_knows(key: str, value: object) -> None:
    assert set(faults_of(**{key: value})) == {key}


def test_host_networking_is_refused_with_its_own_reason() -> None:
    assert "host networking is refused" in faults_of(network="host")["network"]


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("memory_mb", -1),
        ("memory_mb", 0),
        ("memory_mb", "512Mi"),
        ("memory_mb", 1.5),
        ("memory_mb", True),
        ("memory_mb", 10**9),
        ("cpus", float("nan")),
        ("cpus", float("inf")),
        ("cpus", "500m"),
        ("cpus", 0),
        ("cpus", None),
        ("pids", -5),
        ("tmpfs_mb", -1),
        ("wall_s", 0),
        ("wall_s", 1e9),
        ("silence_s", float("-inf")),
        ("output_mb", 100_000),
        ("parallelism", 0),
        ("max_batch", 101),
        ("swap_mb", 1),
    ],
)
def test_malformed_limit_is_refused_not_left_out(limit: str, value: object) -> None:
    assert f"limits.{limit}" in faults_of(limits={limit: value})


def test_batch_that_could_take_days_is_refused() -> None:
    assert "limits.max_batch" in faults_of(limits={"wall_s": 14_400, "parallelism": 1, "max_batch": 7})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"slug": "nmap"}, "slug"),
        ({"slug": "Echo"}, "slug"),
        ({"slug": "echo\n"}, "slug"),
        ({"digest": "sha256:12"}, "digest"),
        ({"digest": None}, "digest"),
        ({"image": "tools/nmap:latest"}, "image"),
        ({"image": f"tools/nmap@{DIGEST}"}, "image"),
        ({"image": "../nmap"}, "image"),
        ({"image": "Tools/nmap"}, "image"),
        ({"entrypoint": []}, "entrypoint"),
        ({"entrypoint": ["nmap"]}, "entrypoint"),
        ({"entrypoint": ["/nmap", "{host}"]}, "entrypoint"),
        ({"argv": ["x{host}"]}, "argv.0"),
        ({"argv": ["{host}y"]}, "argv.0"),
        ({"argv": ["{hosts}"]}, "argv.0"),
        ({"argv": ["-n", "{url}"]}, "argv.1"),
        ({"argv": ["{port}"]}, "argv.0"),
        ({"argv": ["{option:missing}"]}, "argv.0"),
        ({"argv": ["--x={option:banners}"]}, "argv.0"),
        ({"argv": ["a\nb"]}, "argv"),
        ({"argv": "-n {host}"}, "argv"),
        ({"argv": ["x"] * 65}, "argv"),
        ({"options": {"ports": {"type": "ports"}, "allow": {"type": "flag"}}}, "options.allow"),
        (
            {"options": {"ports": {"type": "ports"}, "a": {"type": "whole", "low": -1, "default": 1}}},
            "options.a.low",
        ),
        ({"options": {"ports": {"type": "ports"}, "a": {"type": "text"}}}, "options.a.type"),
        (
            {"options": {"ports": {"type": "ports"}, "a": {"type": "choice", "of": ["-x"], "default": "-x"}}},
            "options.a.of",
        ),
        ({"options": []}, "options"),
        ({"category": "http_probe"}, "output"),
        ({"limits": [1]}, "limits"),
        ({"name": "a\x1b[2J"}, "name"),
    ],
)
def test_malformed_manifest_names_the_place(change: dict[str, object], path: str) -> None:
    assert path in faults_of(**change)


def test_all_faults_are_answered_at_once() -> None:
    found = faults_of(slug="?", digest="?", network="host", limits={"pids": -1}, mounts=[])

    assert {"slug", "digest", "network", "limits.pids", "mounts"} <= set(found)


@pytest.mark.parametrize("raw", [None, [], "text", 1, {1: 2}])
def test_no_object_is_no_manifest(raw: object) -> None:
    with pytest.raises(Invalid) as refused:
        read_manifest(raw)

    assert refused.value.code == "connector.invalid"


@pytest.mark.parametrize("source", ["a: &x 1\nb: *x", "{", "\x00", "a: " + "[" * 60_000, "x" * 70_000])
def test_file_that_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(Invalid):
        read_manifest(load_manifest(source))


def test_records_protocol_ends_with_the_last_word() -> None:
    command, reader = start(read_manifest(ECHO), ToolJob("a", "lab.test"), times=3, deny=["x.test"])

    told = orjson.loads(command.stdin)
    assert told["job"] == "a"
    assert told["target"]["host"] == "lab.test"
    assert told["options"] == {"times": 3, "allow": [], "bound": False, "deny": ["x.test"]}
    assert reader.feed(b'{"record": {"name": "www.lab.test"}}') == ({"name": "www.lab.test"},)
    assert reader.feed(b'{"tick": 1}') == ()
    assert (
        reader.feed(b'{"job": "a", "done": {"outcome": "completed", "complete": true, "reachable": true}}')
        == ()
    )
    conclusion = reader.conclude(Ended(0, ""))
    assert (conclusion.failure, conclusion.complete, conclusion.reachable) == (None, True, True)


@pytest.mark.parametrize("line", [b"no json", b"[]", b'{"job": "b", "record": {}}', b'{"record": 1}', b"{}"])
def test_line_that_says_nothing_costs_itself(line: bytes) -> None:
    _, reader = start(read_manifest(ECHO), ToolJob("a", "lab.test"))

    with pytest.raises(MalformedRecord):
        reader.feed(line)


def test_what_a_container_nests_deep_is_cut_where_it_is_read() -> None:
    _, reader = start(read_manifest(ECHO), ToolJob("a", "lab.test"))
    deep = b'{"a":' * 900 + b"{}" + b"}" * 900
    last = b'{"done":{"outcome":"completed","complete":true,"coverage":%b,"error":%b}}' % (deep, deep)

    (record,) = reader.feed(b'{"record":%b}' % deep)
    reader.feed(last)
    conclusion = reader.conclude(Ended(0, ""))

    assert orjson.dumps(record).count(b"a") == orjson.dumps(conclusion.coverage).count(b"a") < 100
    assert (conclusion.complete, conclusion.note) == (True, None)


def test_container_without_a_last_word_has_no_result() -> None:
    _, reader = start(read_manifest(ECHO), ToolJob("a", "lab.test"))

    assert reader.conclude(Ended(0, "")).failure == "the container ended without a last word"


def test_fatal_of_a_connector_is_not_tried_again() -> None:
    _, reader = start(read_manifest(ECHO), ToolJob("a", "lab.test"))
    reader.feed(b'{"done": {"outcome": "fatal", "error": "no such thing"}}')

    with pytest.raises(BadTarget, match="no such thing"):
        reader.conclude(Ended(1, ""))


SHIPPED = sorted(Path(__file__).parents[2].glob("connectors/*/*/manifest.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_manifest_is_valid_once_its_image_is_built(path: Path) -> None:
    document = {**load_manifest(path.read_bytes()), "digest": DIGEST}

    manifest = read_manifest(document)

    assert path.parent.parent.name == manifest.category


def test_connectors_are_shipped() -> None:
    assert {path.parent.name for path in SHIPPED} == {"nmap", "echo"}


def test_every_limit_has_bounds_and_its_default_is_inside() -> None:
    bounds = {**WHOLES, **NUMBERS}

    assert set(bounds) == set(Limits().as_json())
    for name, value in Limits().as_json().items():
        low, high = bounds[name]
        assert low <= float(str(value)) <= high


def test_schema_for_editors_has_the_keys_that_are_read() -> None:
    schema = orjson.loads(manifest_schema())
    told = read_manifest(MANIFEST).as_json()

    assert set(schema["properties"]) == set(told)
    assert set(schema["properties"]["limits"]["properties"]) == set(Limits().as_json())
    kinds = {
        each["properties"]["type"]["const"]
        for each in schema["properties"]["options"]["additionalProperties"]["oneOf"]
    }
    assert kinds == {"whole", "flag", "choice", "ports"}
    with pytest.raises(Invalid) as refused:
        read_manifest({})
    assert set(refused.value.fields) == set(schema["required"])


def test_page_about_connectors_tells_every_key_and_every_limit_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"
    ]
    told = {name: row for row in rows for name in re.findall(r"`([a-z0-9_-]+)`", row[0])}

    assert set(read_manifest(MANIFEST).as_json()) <= set(told)
    for name, (low, high) in {**WHOLES, **NUMBERS}.items():
        assert [float(cell) for cell in told[name][1:]] == [Limits().as_json()[name], low, high]
