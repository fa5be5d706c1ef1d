"""Lines from a child: what is read, cut and refused."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.jobs import Outcome
from runlane.scan.lines import (
    MAX_COVERAGE_BYTES,
    MAX_ERROR,
    DoneLine,
    Garbled,
    RecordLine,
    Tick,
    cancel_line,
    job_lines,
    read_line,
)
from runlane.scan.wire import ClaimedJob


def done(**fields: object) -> bytes:
    return orjson.dumps({"job": "a", "done": fields})


def test_record_is_kept_as_json_text() -> None:
    assert read_line(b'{"job": "a", "record": {"port": 80}}') == RecordLine("a", b'{"port":80}')


def test_tick_is_a_life_sign() -> None:
    assert read_line(b'{"tick": 3}') == Tick()


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("completed", Outcome.COMPLETED),
        ("failed", Outcome.TOOL_FAILED),
        ("fatal", Outcome.FATAL),
        ("cancelled", None),
    ],
)
def test_outcome_of_the_stream_becomes_one_of_ours(said: str, outcome: Outcome | None) -> None:
    line = read_line(done(outcome=said, error=None, complete=True, reachable=True, coverage={"ports": "80"}))

    assert line == DoneLine("a", outcome, None, complete=True, reachable=True, coverage={"ports": "80"})


def test_done_without_a_known_outcome_is_a_failure_of_the_tool() -> None:
    line = read_line(done(outcome="sideways"))

    assert isinstance(line, DoneLine)
    assert line.outcome is Outcome.TOOL_FAILED


def test_oversized_coverage_is_dropped_and_the_result_is_not_complete() -> None:
    line = read_line(done(outcome="completed", complete=True, coverage={"x": "y" * MAX_COVERAGE_BYTES}))

    assert isinstance(line, DoneLine)
    assert (line.complete, line.coverage) == (False, {})


def test_long_error_is_cut() -> None:
    line = read_line(done(outcome="failed", error="e" * 10_000))

    assert isinstance(line, DoneLine)
    assert line.error == "e" * MAX_ERROR


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr).map(str.encode))
def test_any_bytes_are_read_without_an_error(line: bytes) -> None:
    assert read_line(line) is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["outcome", "error", "coverage", "x"]), inner)
    ),
)


@given(st.sampled_from(["record", "done", "tick"]), JSON)
def test_any_json_in_a_known_place_is_read_without_an_error(key: str, value: object) -> None:
    assert read_line(json.dumps({"job": "a", key: value}).encode()) is not None


@given(JSON)
def test_what_is_no_line_of_the_protocol_is_garbled(value: object) -> None:
    assert read_line(json.dumps([value]).encode()) == Garbled()


def test_what_is_nested_deep_is_dropped_and_the_result_is_not_complete() -> None:
    deep = b'{"a":' * 900 + b"{}" + b"}" * 900

    assert read_line(b'{"job":"a","record":%b}' % deep) == Garbled()
    said = read_line(b'{"job":"a","done":{"outcome":"completed","complete":true,"coverage":%b}}' % deep)
    assert said == DoneLine("a", Outcome.COMPLETED)


def test_job_line_joins_common_options_and_the_attempt() -> None:
    text = job_lines([ClaimedJob("a", 2, {"host": "h"}), ClaimedJob("b", 1, {"host": "i"})], {"ports": "80"})

    lines = [orjson.loads(line) for line in text.splitlines()]
    assert lines == [
        {"job": "a", "target": {"host": "h"}, "options": {"attempt": 2, "ports": "80"}},
        {"job": "b", "target": {"host": "i"}, "options": {"attempt": 1, "ports": "80"}},
    ]


def test_job_line_without_options_is_valid_json() -> None:
    assert orjson.loads(job_lines([ClaimedJob("a", 1, {})], {}))["options"] == {"attempt": 1}


def test_cancel_line_names_the_job() -> None:
    assert orjson.loads(cancel_line("a")) == {"cancel": "a"}
