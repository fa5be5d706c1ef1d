"""What lanes promise of themselves: a sink for each, none that knows another, no data read in vain."""

import ast
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from lanes.arrivals import arrive
from lanes.runner import SINKS
from lanes.sink import Sink
from runlane.events import LEAVES, SUBSCRIPTIONS, Lane, is_subscribed
from runlane.stream import Entry

DOCUMENT = {"audit", "projection", "notifications", "integrations", "projects"}
MODULES = {type(sink).__module__ for sink in SINKS}


def test_there_are_the_lanes_of_the_document_each_with_a_sink_and_no_other() -> None:
    assert [sink.lane for sink in SINKS] == [*dict.fromkeys(sink.lane for sink in SINKS)]
    assert {sink.lane for sink in SINKS} == set(Lane) == SUBSCRIPTIONS.keys() == DOCUMENT


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.lane)
def test_a_sink_takes_something_of_what_its_lane_reads(sink: Sink) -> None:
    taken = {name for name in LEAVES if sink.accepts(name)}

    assert {name for name in taken if is_subscribed(sink.lane, name)}


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.lane)
def test_no_sink_knows_another(sink: Sink) -> None:
    module = type(sink).__module__
    source = Path(str(sys.modules[module].__file__)).read_text()
    imported = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
    }

    assert imported & (MODULES - {module}) == set()


def test_data_that_no_sink_wants_is_not_read() -> None:
    workspace = str(uuid4()).encode()
    fields = {b"type": b"job.created", b"sequence": b"7", b"workspaceid": workspace, b"data": b"{no JSON"}

    unwanted = arrive(Entry("1-0", fields), lambda _name: False)
    wanted = arrive(Entry("1-0", fields), lambda _name: True)

    assert (unwanted.sequence, unwanted.event, unwanted.fault) == (7, None, None)
    assert wanted.fault
