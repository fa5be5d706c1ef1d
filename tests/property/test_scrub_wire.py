"""Our codec and the CloudEvents SDK say the same of every event."""

import json
import string
from datetime import UTC, datetime

from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st

from runlane.events import LEAVES, BusEvent, Envelope
from runlane.events.wire import decode, to_fields, validate

TEXT = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20).filter(
    lambda name: (
        name
        not in {
            "id",
            "type",
            "source",
            "specversion",
            "time",
            "subject",
            "workspaceid",
            "sequence",
            "schemaversion",
        }
        | {"datacontenttype", "data", "dataschema"}
    )
)
EVENTS = st.builds(
    BusEvent,
    st.builds(
        Envelope,
        id=st.uuids(),
        type=st.sampled_from(sorted(LEAVES)),
        workspace_id=st.uuids(),
        subject=st.text(string.ascii_letters + string.digits + "/-_.", min_size=1),
        data=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), JSON, max_size=5),
        attributes=st.dictionaries(NAMES, st.text(string.printable.strip(), min_size=1), max_size=3),
    ),
    st.integers(1, 2**63 - 1),
    st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  # hypothesis wants it
)


@given(EVENTS)
def test_an_event_comes_back_from_the_stream_as_it_went(event: BusEvent) -> None:
    sent = to_fields(event)
    validate(event, sent)

    fields = {name.encode(): text.encode() for name, text in sent.items()}

    assert decode(fields) == event


@given(EVENTS)
def test_the_sdk_reads_our_entries_as_we_do(event: BusEvent) -> None:
    fields = to_fields(event)
    structured = json.dumps({**fields, "data": json.loads(fields["data"])})

    read = JSONFormat().read(None, structured)

    sent = event.envelope
    assert read.get_id() == str(sent.id)
    assert read.get_type() == sent.type
    assert read.get_source() == "oasm://core-api"
    assert read.get_time() == event.time
    assert read.get_subject() == sent.subject
    assert read.get_extension("workspaceid") == str(sent.workspace_id)
    assert int(read.get_extension("sequence")) == event.sequence
    assert {name: read.get_extension(name) for name in sent.attributes} == sent.attributes
    assert read.get_data() == sent.data


@given(EVENTS)
def test_what_the_sdk_writes_is_read_by_us(event: BusEvent) -> None:
    fields = to_fields(event)
    read = JSONFormat().read(None, json.dumps({**fields, "data": json.loads(fields["data"])}))
    written = json.loads(JSONFormat().write(read))
    entry = {
        name.encode(): (json.dumps(value) if name == "data" else value).encode()
        for name, value in written.items()
    }

    assert decode(entry) == event
