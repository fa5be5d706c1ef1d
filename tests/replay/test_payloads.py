"""Old and new programs read each other's inputs and results: fields are only added, and with a default."""

import json

import pytest
from temporalio.api.common.v1 import Payload

from runlane.failures import DATA_CONVERTER
from tests.replay.travelling import PROMISED, required_of, sample_of, travelling

TRAVELLING = travelling()


def load(value: object, hint: type) -> object:
    """What a program of ours makes of a payload."""
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())
    return DATA_CONVERTER.payload_converter.from_payload(payload, hint)


@pytest.mark.parametrize("name", TRAVELLING)
def test_payload_of_an_older_sender_loads_without_later_fields(name: str) -> None:
    loaded = load(sample_of(TRAVELLING[name]), TRAVELLING[name])

    assert isinstance(loaded, TRAVELLING[name])


@pytest.mark.parametrize("name", TRAVELLING)
def test_payload_of_a_newer_sender_loads_with_a_field_that_is_unknown(name: str) -> None:
    sample = sample_of(TRAVELLING[name])
    assert isinstance(sample, dict)

    loaded = load({**sample, "of_a_later_version": {"deep": [1]}}, TRAVELLING[name])

    assert isinstance(loaded, TRAVELLING[name])
    assert not hasattr(loaded, "of_a_later_version")


def test_no_field_is_required_that_an_older_sender_does_not_know() -> None:
    promised: dict[str, list[str]] = json.loads(PROMISED.read_text())
    required = {name: set(required_of(cls)) for name, cls in TRAVELLING.items() if name in promised}

    assert {name: fields - set(promised[name]) for name, fields in required.items()} == {
        name: set() for name in required
    }, "a field that comes later has a default"
