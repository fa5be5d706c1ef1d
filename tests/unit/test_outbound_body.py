"""What leaves the platform about an event: ten fields and nothing of the envelope besides."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest

from runlane.events import LEAVES, BusEvent, Envelope
from runlane.events.outbound import MAX_OUTBOUND_BYTES, outbound_body

WORKSPACE = UUID("0192d3a0-0000-7000-8000-000000000001")
EVENT = UUID("0192d3a0-0000-7000-8000-000000000002")
TARGET = UUID("0192d3a0-0000-7000-8000-000000000003")
AT = datetime(2026, 12, 1, 8, 30, tzinfo=UTC)
TEN = [
    *("type", "workspaceId", "occurredAt", "outcome", "actor"),
    *("resourceType", "resourceId", "changes", "metadata", "payload"),
]


def event(event_type: str, data: dict[str, Any], **attributes: str) -> BusEvent:
    sent = Envelope(EVENT, event_type, WORKSPACE, f"target/{TARGET}", data, attributes)
    return BusEvent(sent, 7, AT)


def test_the_body_is_built_of_ten_fields() -> None:
    made = event(
        "target.updated",
        {"value": "example.com", "changes": {"tags": ["a"]}, "metadata": {"how": "import"}},
        actorid="key-1",
        actortype="api_key",
    )

    assert outbound_body(made) == {
        "type": "target.updated",
        "workspaceId": str(WORKSPACE),
        "occurredAt": "2026-12-01T08:30:00.000000Z",
        "outcome": "success",
        "actor": {"id": "key-1", "type": "api_key"},
        "resourceType": "target",
        "resourceId": str(TARGET),
        "changes": {"tags": ["a"]},
        "metadata": {"how": "import"},
        "payload": {"value": "example.com"},
    }


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_every_event_has_exactly_the_ten_fields_and_nothing_of_the_envelope(name: str) -> None:
    fields = LEAVES[name].payload.model_fields
    inside = {"traceparent": "planted", "cause": "planted", "requestid": "planted", "hops": "planted"}

    body = outbound_body(event(name, dict.fromkeys(fields, "told"), **inside))

    assert list(body) == TEN
    assert body["payload"] == dict.fromkeys(fields.keys() - {"changes", "metadata"}, "told")
    written = orjson.dumps(body).decode()
    assert "planted" not in written
    assert str(EVENT) not in written


@pytest.mark.parametrize(
    ("event_type", "attributes", "outcome"),
    [
        ("target.created", {}, "success"),
        ("job.failed", {}, "failure"),
        ("worker.timed_out", {}, "failure"),
        ("job.failed", {"outcome": "success"}, "success"),
    ],
)
def test_an_event_without_an_outcome_has_the_one_of_its_name(
    event_type: str, attributes: dict[str, str], outcome: str
) -> None:
    assert outbound_body(event(event_type, {}, **attributes))["outcome"] == outcome


def test_changes_that_are_names_only_stand_as_an_object() -> None:
    body = outbound_body(event("asset.updated", {"changes": ["ports", "tags"]}))

    assert body["changes"] == {"ports": None, "tags": None}


def test_a_secret_that_came_by_the_stream_does_not_leave() -> None:
    body = outbound_body(event("target.updated", {"password": "hunter2", "note": "q8Zt" * 12}))

    assert body["payload"] == {"note": "***"}


def test_the_largest_fields_of_a_huge_event_are_left_out_and_named() -> None:
    data = {"list": ["x" * 30] * 3_000, "small": "kept", "changes": {"all": ["y" * 30] * 4_000}}

    body = outbound_body(event("target.updated", data))

    assert body["payload"] == {"small": "kept"}
    assert body["metadata"] == {"leftOut": ["payload.list", "changes.all"]}
    assert len(orjson.dumps(body)) <= MAX_OUTBOUND_BYTES


def test_a_body_of_many_long_names_is_within_the_limit() -> None:
    body = outbound_body(event("target.updated", {f"{at} {'n ' * 250}": "v" * 30 for at in range(1_000)}))

    assert len(orjson.dumps(body)) <= MAX_OUTBOUND_BYTES
