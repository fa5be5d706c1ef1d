"""What may start runs of a definition, as it is written."""

import pytest

from runlane.definitions import parse_definition
from runlane.errors import Invalid
from runlane.events.catalog import LEAVES
from runlane.triggers import EVENTS

JOBS = {"a": {"run": "noop"}}


def on(entry: object) -> object:
    return parse_definition({"name": "x", "on": entry, "jobs": JOBS}).as_json().get("on")


def test_events_that_may_start_runs_are_those_of_the_catalog_and_about_targets() -> None:
    assert EVENTS.keys() <= LEAVES.keys()
    assert all(not name.startswith(("job.", "worker.", "operator.")) for name in EVENTS)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("target.created", ["target.created"]),
        (["request", "target.created", "target.created"], ["target.created"]),
        ("request", None),
        ({"event": "vulnerability.detected", "severity": "high"},
         [{"event": "vulnerability.detected", "severity": ["high"]}]),
        ([{"event": "workflow.run.completed", "definitions": ["a", "b"], "tags": "shop"}],
         [{"event": "workflow.run.completed", "definitions": ["a", "b"], "tags": ["shop"]}]),
    ],
)  # fmt: skip
def test_entry_is_kept_in_one_form_and_reads_as_itself(said: object, kept: object) -> None:
    assert on(said) == kept
    assert on(kept or []) == kept


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("job.completed", {"on"}),
        (["target.created", {"event": "nothing"}], {"on.1.event"}),
        ([7], {"on.0"}),
        ({"event": "target.created", "severity": "high"}, {"on.0.severity"}),
        (
            {"event": "vulnerability.detected", "severity": "grave", "tags": []},
            {"on.0.severity", "on.0.tags"},
        ),
        ({"event": "asset.discovered", "tools": [1], "groups": "x" * 101}, {"on.0.tools", "on.0.groups"}),
        ({"event": "request", "tags": ["x"]}, {"on.0.event"}),
        (["target.created"] * 21, {"on"}),
    ],
)
def test_everything_that_is_wrong_with_an_entry_is_said_at_once(said: object, fields: set[str]) -> None:
    with pytest.raises(Invalid) as refused:
        on(said)

    assert refused.value.code == "definition.invalid"
    assert refused.value.fields.keys() == fields
