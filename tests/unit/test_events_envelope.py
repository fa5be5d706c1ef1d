"""Envelopes: deterministic ids, scrubbed data, and what is refused."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from runlane.errors import Defect, Invalid
from runlane.events import EVENT_CATALOG, Actor, BusEvent, envelope, payloads
from runlane.events.wire import decode, sequence_of, to_fields, validate

WORKSPACE = UUID("01a22ba7-d81b-770c-84aa-4d540b75ff15")
JOB = UUID("78bc02ee-3ad1-573a-a33f-6e6fb7de82a5")
SUBJECT = f"job/{JOB}"
MOMENT = datetime(2026, 11, 30, 10, 0, 0, 5, tzinfo=UTC)


def failed(error: str | None, reason: str = "budget") -> payloads.JobFailed:
    return payloads.JobFailed(
        job_id=JOB, run_id=JOB, step_id="ports", tool_id="portprobe", attempt=4,
        reason=reason, error=error, failures=4,
    )  # fmt: skip


def test_the_same_occurrence_has_the_same_id_and_another_one_has_another() -> None:
    leaf = EVENT_CATALOG.job.failed
    first = envelope(leaf, failed(None), workspace_id=WORKSPACE, subject=SUBJECT, ordinal=4)
    again = envelope(leaf, failed("text"), workspace_id=WORKSPACE, subject=SUBJECT, ordinal=4)
    other = envelope(leaf, failed(None), workspace_id=WORKSPACE, subject=SUBJECT, ordinal=5)

    assert first.id == again.id
    assert first.id != other.id


def test_data_is_plain_json() -> None:
    made = envelope(EVENT_CATALOG.job.failed, failed(None), workspace_id=WORKSPACE, subject=SUBJECT)

    assert made.data == {
        "job_id": str(JOB), "run_id": str(JOB), "step_id": "ports", "tool_id": "portprobe", "attempt": 4,
        "reason": "budget", "error": None, "failures": 4,
    }  # fmt: skip
    assert made.attributes == {}


def test_cause_and_actor_become_attributes() -> None:
    made = envelope(
        EVENT_CATALOG.job.failed,
        failed(None),
        workspace_id=WORKSPACE,
        subject=SUBJECT,
        cause="run",
        actor=Actor("key-7", "api_key"),
    )

    assert made.attributes == {"cause": "run", "actorid": "key-7", "actortype": "api_key"}


def test_hops_and_trace_context_become_attributes_when_there_are_any() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    plain = envelope(EVENT_CATALOG.job.failed, failed(None), workspace_id=WORKSPACE, subject=SUBJECT)
    made = envelope(
        EVENT_CATALOG.job.failed,
        failed(None),
        workspace_id=WORKSPACE,
        subject=SUBJECT,
        hops=2,
        actor=Actor("x", "api_key", trace),
    )

    assert plain.attributes == {}
    assert made.attributes == {"hops": "2", "actorid": "x", "actortype": "api_key", "traceparent": trace}
    assert to_fields(BusEvent(made, 1, MOMENT))["schemaversion"] == "1"


def test_a_credential_in_an_error_is_masked_before_the_error_is_cut() -> None:
    token = "T" * 60
    text = "x" * (payloads.MAX_ERROR - 30) + " " + token

    made = envelope(EVENT_CATALOG.job.failed, failed(text), workspace_id=WORKSPACE, subject=SUBJECT)

    assert "T" not in str(made.data["error"])
    assert str(made.data["error"]).endswith("***")


def test_hostile_text_becomes_storable_and_is_cut() -> None:
    payload = failed("a\x00b\ud800c", reason="r" * 10_000)

    assert payload.error == "a\ufffdb\ufffdc"
    assert len(payload.reason) == payloads.MAX_TEXT


@pytest.mark.parametrize("subject", ["", "job 1", "job/\n", "jöb/1", "x" * 300])
def test_a_subject_that_is_no_plain_name_is_a_defect(subject: str) -> None:
    with pytest.raises(Defect, match="subject"):
        envelope(EVENT_CATALOG.job.failed, failed(None), workspace_id=WORKSPACE, subject=subject)


def test_the_payload_of_another_leaf_is_a_defect() -> None:
    with pytest.raises(Defect, match="JobStarted"):
        envelope(  # type: ignore[misc]  # what a type checker refuses too
            EVENT_CATALOG.job.started,
            failed(None),
            workspace_id=WORKSPACE,
            subject=SUBJECT,
        )


def bus_event() -> BusEvent:
    sent = envelope(EVENT_CATALOG.job.failed, failed("é"), workspace_id=WORKSPACE, subject=SUBJECT)
    return BusEvent(sent, 7, MOMENT)


def test_an_entry_has_a_field_for_each_attribute() -> None:
    assert to_fields(bus_event()) == {
        "id": str(bus_event().envelope.id),
        "type": "job.failed",
        "source": "oasm://core-api",
        "specversion": "1.0",
        "time": "2026-11-30T10:00:00.000005Z",
        "subject": SUBJECT,
        "workspaceid": str(WORKSPACE),
        "sequence": "00000000000000000007",
        "schemaversion": "1",
        "datacontenttype": "application/json",
        "data": (
            f'{{"job_id":"{JOB}","run_id":"{JOB}","step_id":"ports","tool_id":"portprobe","attempt":4,'
            '"reason":"budget","error":"é","failures":4}'
        ),
    }


def test_an_event_of_a_later_version_with_further_fields_is_read_like_any_other() -> None:
    fields = {name.encode(): text.encode() for name, text in to_fields(bus_event()).items()}
    later = fields | {b"schemaversion": b"2", b"data": fields[b"data"].replace(b"{", b'{"more":[1],', 1)}

    read = decode(later)

    assert read.envelope.data == {"more": [1], **bus_event().envelope.data}
    assert read == replace(bus_event(), envelope=replace(bus_event().envelope, data=read.envelope.data))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workspaceId", "x"),
        ("cause\n", "x"),
        ("a" * 21, "x"),
        ("cause", "line\nend"),
        ("", "x"),
        ("data", "x"),
        ("sequence", "1"),
    ],
)
def test_an_attribute_that_cloudevents_forbids_is_found(name: str, value: str) -> None:
    event = bus_event()
    odd = replace(event, envelope=replace(event.envelope, attributes={name: value}))

    with pytest.raises(Defect):
        validate(odd, to_fields(odd))


def test_a_time_without_zone_is_found() -> None:
    event = replace(bus_event(), time=datetime(2026, 11, 30))  # noqa: DTZ001  # the point of the test

    with pytest.raises(Defect, match="time"):
        validate(event, to_fields(event))


@pytest.mark.parametrize("missing", ["id", "type", "time", "subject", "workspaceid", "sequence", "data"])
def test_an_entry_without_one_of_these_is_malformed(missing: str) -> None:
    fields = {
        name.encode(): text.encode() for name, text in to_fields(bus_event()).items() if name != missing
    }

    with pytest.raises(Invalid, match=missing):
        decode(fields)


@pytest.mark.parametrize("digits", [b"", b"-1", b"1.5", b"x", "²".encode(), b"1" * 21])
def test_a_sequence_that_is_no_number_is_none(digits: bytes) -> None:
    assert sequence_of({b"sequence": digits}) is None
