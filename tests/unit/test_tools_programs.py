"""Adapters of foreign programs: what is started, what may stand in a step's config, what output means."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.definitions import parse_definition
from runlane.errors import Invalid
from runlane.jobs import Outcome
from runlane.scan.pins import Refusal, pin
from runlane.scan.wire import ClaimedJob
from runlane.tools import TOOLS, Shape
from runlane.tools.adapters import ADAPTERS, config_faults
from runlane.tools.adapters.adapter import Each, ToolJob
from runlane.tools.adapters.jobs import BadTarget, read_job
from runlane.tools.adapters.options import BadOption, Ports, faults, read_options
from tests.unit.program_jobs import APP, SIX, first_command


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


def test_no_third_party_hears_of_a_name_in_an_internal_network() -> None:
    bound = read_options(ADAPTERS["subfinder"].schema, {"allow": ["10.0.0.0/8"], "bound": True})

    with pytest.raises(BadTarget, match="internal network"):
        first_command("subfinder", APP, bound)
