"""Schemas of events: complete, without a loose end, and never broken unawares."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import JsonValue, create_model

from runlane.events import EVENT_SCHEMA_VERSION, LEAVES, Actor, BusEvent, Lane, envelope, payloads
from runlane.events.catalog import EVENT_CATALOG, RESERVED, Leaf
from runlane.events.compatibility import breaking_changes, shapes_of
from runlane.events.schemas import ATTRIBUTES, OPTIONAL, asyncapi_document, event_schemas
from runlane.events.trail_payloads import NetworkPayload
from runlane.events.wire import to_fields
from tests.contracts.record import BASELINE, recorded

ROOT = Path(__file__).parents[2]
WORKSPACE = UUID("01a22ba7-d81b-770c-84aa-4d540b75ff15")


def refs_in(node: JsonValue) -> Iterator[str]:
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from refs_in(value)
    elif isinstance(node, list):
        for each in node:
            yield from refs_in(each)


def find(document: JsonValue, ref: str) -> JsonValue:
    """What a `$ref` names."""
    node = document
    for word in ref.removeprefix("#/").split("/"):
        assert isinstance(node, dict), ref
        node = node[word]
    return node


@pytest.mark.parametrize("text", [event_schemas(), asyncapi_document()], ids=["schemas", "asyncapi"])
def test_every_reference_of_a_document_leads_somewhere(text: str) -> None:
    document = json.loads(text)
    refs = set(refs_in(document))

    assert len(refs) >= len({leaf.payload for leaf in LEAVES.values()})
    assert [ref for ref in refs if not find(document, ref)] == []


def test_the_schemas_say_which_data_goes_with_which_type() -> None:
    document = json.loads(event_schemas())
    cases = {case["properties"]["type"]["const"]: case["properties"]["data"] for case in document["oneOf"]}

    assert cases.keys() == LEAVES.keys()
    assert cases["job.created"] == {"$ref": "#/$defs/JobCreated"}
    created = document["$defs"]["JobCreated"]
    assert "additionalProperties" not in created
    assert set(created["required"]) == set(payloads.JobCreated.model_fields)


def test_the_asyncapi_document_has_what_the_specification_asks_for() -> None:
    document = json.loads(asyncapi_document())

    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= document["info"].keys()
    assert document["channels"]["bus"]["address"] == "oasm:events"
    assert document["channels"]["deadLetters"]["address"] == "oasm:events:dlq:{workspaceId}"
    assert document["channels"]["deadLetters"]["parameters"].keys() == {"workspaceId"}
    assert document["components"]["messages"].keys() == LEAVES.keys()
    assert document["operations"].keys() == {"publish", *(f"lane.{lane}" for lane in Lane)}
    for operation in document["operations"].values():
        assert operation["action"] in {"send", "receive"}
        assert operation["channel"] == {"$ref": "#/channels/bus"}
        assert operation["messages"]
        assert all(each["$ref"].startswith("#/channels/bus/messages/") for each in operation["messages"])


def test_what_an_entry_carries_is_what_the_documents_name() -> None:
    sent = envelope(
        EVENT_CATALOG.network.created,
        NetworkPayload(action="network.create", resource_id=WORKSPACE, value=None, jobs=None, reason=None),
        workspace_id=WORKSPACE,
        subject=f"network/{WORKSPACE}",
        cause="run",
        actor=Actor("x", "api_key"),
    )
    fields = to_fields(BusEvent(sent, 1, datetime(2026, 12, 1, tzinfo=UTC)))

    assert fields.keys() - {"data"} <= ATTRIBUTES.keys()
    assert ATTRIBUTES.keys() - OPTIONAL <= fields.keys()


def like(leaf: Leaf[payloads.Payload], **fields: object) -> Leaf[payloads.Payload]:
    """A leaf whose payload has these fields."""
    made = create_model("Like", __base__=payloads.Payload, **fields)  # type: ignore[call-overload]  # by name
    return replace(leaf, payload=made)


LEAF = LEAVES["job.result.cleaned"]
BEFORE = shapes_of([like(LEAF, ref=(str, ...), size=(int | None, None))])


@pytest.mark.parametrize(
    ("fields", "broken"),
    [
        ({"ref": (str, ...), "size": (int | None, None)}, []),
        ({"ref": (str, ...), "size": (int | None, None), "more": (str | None, None)}, []),
        ({"ref": (str, ...)}, ["job.result.cleaned: size is gone"]),
        ({"ref": (int, ...), "size": (int | None, None)}, ["job.result.cleaned: ref has another type"]),
        ({"ref": (str, ...), "size": (int, None)}, ["job.result.cleaned: size has another type"]),
        ({"ref": (str, ...), "size": (int | None, ...)}, ["job.result.cleaned: size is required now"]),
        (
            {"ref": (str, ...), "size": (int | None, None), "more": (str, ...)},
            ["job.result.cleaned: more is new and required"],
        ),
    ],
    ids=["same", "optional", "removed", "retyped", "narrowed", "required", "new"],
)
def test_what_breaks_a_consumer_is_told_from_what_does_not(
    fields: dict[str, object], broken: list[str]
) -> None:
    assert breaking_changes(BEFORE, shapes_of([like(LEAF, **fields)])) == broken


def test_an_event_that_is_gone_breaks_its_consumers_and_a_new_one_nobody() -> None:
    everything = shapes_of(LEAVES.values())
    fewer = {name: fields for name, fields in everything.items() if name != "job.created"}

    assert breaking_changes(everything, fewer) == ["job.created is gone"]
    assert breaking_changes(fewer, everything) == []


def test_a_reserved_event_has_no_consumer_to_break() -> None:
    assert shapes_of([replace(LEAVES["job.created"], producer=RESERVED)]) == {}


def test_no_payload_is_broken_without_another_version() -> None:
    """A field was removed, retyped or newly required: bump `EVENT_SCHEMA_VERSION`, or do otherwise."""
    assert BASELINE.name == f"events-v{EVENT_SCHEMA_VERSION}.json"
    assert breaking_changes(recorded(), shapes_of(LEAVES.values())) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("events.schema.json", event_schemas()), ("asyncapi.json", asyncapi_document())],
    ids=["schemas", "asyncapi"],
)
def test_the_documents_of_the_events_are_up_to_date(name: str, text: str) -> None:
    assert (ROOT / "docs/generated" / name).read_text() == text
