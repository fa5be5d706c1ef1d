"""The literal redaction rule, case by case."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

import pytest

from runlane.events import scrub, scrub_text
from runlane.events.scrub import MAX_DEPTH

RUN = "01a22ba7-d81b-770c-84aa-4d540b75ff15"
TOKEN = "q8Zt" * 12


@pytest.mark.parametrize(
    "key",
    [
        "secret", "clientSecret", "token", "nextPageToken", "password", "DB_PASSWORD", "credentials",
        "api_key", "apiKey", "X-Api-Key", "private_key", "privateKey", "access key", "AWS_ACCESS_KEY_ID",
        "Authorization", "bearer", "passphrase", "cert", "certificate", "ssh_key", "sshKey", "tokenizer",
    ],
)  # fmt: skip
def test_a_field_with_a_credential_name_is_dropped(key: str) -> None:
    assert scrub({key: "x", "kept": {key: {"deep": 1}, "also": 2}}) == {"kept": {"also": 2}}


@pytest.mark.parametrize("key", ["key_id", "name", "monkey", "public_key", "keyboard", "scopes", "passport"])
def test_a_field_with_another_name_is_kept(key: str) -> None:
    assert scrub({key: "x"}) == {key: "x"}


@pytest.mark.parametrize(
    "value",
    [
        "sk-1", "AKIAIOSFODNN7EXAMPLE", "-----BEGIN PRIVATE KEY-----\nMIIB", TOKEN, "a" * 40, "=" * 40,
        "  sk-1", "\nAKIA1", f" {TOKEN}\n", "text before -----BEGIN CERTIFICATE-----\nMIIB and after it",
    ],
)  # fmt: skip
def test_a_value_that_looks_like_a_credential_is_masked(value: str) -> None:
    assert scrub({"note": value, "list": [value, [value]]}) == {"note": "***", "list": ["***", ["***"]]}


@pytest.mark.parametrize(
    "value",
    [
        RUN,
        f"run/{RUN}",
        f"run/{RUN}/ports/12",
        f"job/{RUN}",
        "a" * 39,
        "task-sk-1",
        "SK-2024-REPORT-Q3",
        "http://app.lab.test:8080/a/very/long/path/that/goes/on/and/on/for/ever",
        "a sentence of some length that says nothing of any importance to anybody",
        f"scan.{RUN}.probe",
        "",
        "***",
    ],
)
def test_the_platforms_own_ids_and_ordinary_text_survive(value: str) -> None:
    assert scrub({"v": value}) == {"v": value}
    assert scrub_text(value) == value


class Colour(StrEnum):
    RED = "red"


class Opaque:
    def __repr__(self) -> str:
        return "password=hunter2"


def test_every_type_becomes_json() -> None:
    value = {
        1: "int key",
        None: "null key",
        "bytes": b"abc",
        "uuid": UUID(RUN),
        "time": datetime(2026, 11, 30, tzinfo=UTC),
        "decimal": Decimal("1.5"),
        "enum": Colour.RED,
        "set": {"b", "a"},
        "tuple": (1, 2.5, True, None),
        "object": Opaque(),
    }

    assert scrub(value) == {
        "1": "int key",
        "None": "null key",
        "bytes": "[3 bytes]",
        "uuid": RUN,
        "time": "2026-11-30 00:00:00+00:00",
        "decimal": "1.5",
        "enum": "red",
        "set": ["a", "b"],
        "tuple": [1, 2.5, True, None],
        "object": "Opaque",
    }


def test_a_cycle_ends() -> None:
    ring: dict[str, object] = {"n": 1}
    ring["self"] = [ring]

    assert scrub(ring) == {"n": 1, "self": ["[cycle]"]}


def test_the_same_object_twice_is_no_cycle() -> None:
    twin = {"n": 1}

    assert scrub({"a": twin, "b": twin}) == {"a": {"n": 1}, "b": {"n": 1}}


def test_depth_is_capped() -> None:
    deep: object = "bottom"
    for _ in range(1000):
        deep = [deep]

    found = scrub(deep)

    for _ in range(MAX_DEPTH):
        assert isinstance(found, list)
        (found,) = found
    assert found == "[max depth]"


def test_a_credential_as_a_key_is_masked() -> None:
    assert scrub({"AKIA12345": 1}) == {"***": 1}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-abc refused", "key *** refused"),
        ("(AKIA1234)", "(***)"),
        (f"token {TOKEN}, again {TOKEN}.", "token ***, again ***."),
        (f"Authorization: Bearer {TOKEN}", "Authorization: Bearer ***"),
        ("pem\n-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nrest", "pem\n***\nrest"),
        ("cut -----BEGIN RSA PRIVATE KEY-----\nMIIB", "cut ***"),
        (f"job_id={RUN} run=run/{RUN}/ports", f"job_id={RUN} run=run/{RUN}/ports"),
        (f"{TOKEN}run/{RUN}", "***"),
        ("disk-full at task-sk", "disk-full at task-sk"),
        (f"GET http://h/a?key={TOKEN}&n=1 failed", "GET http://h/a?***&n=1 failed"),
        (f"https://hooks.test/{TOKEN}", "https://hooks.test/***"),
        ("no file /srv/data/application/releases/current/config/settings", None),
        (f"no file /srv/{TOKEN}/x", "no file /srv/***/x"),
        ("aws wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws ***"),
    ],
)
def test_words_that_look_like_tokens_are_masked_inside_a_text(text: str, masked: str | None) -> None:
    assert scrub_text(text) == (text if masked is None else masked)


def test_a_mapping_of_any_kind_is_walked() -> None:
    assert scrub(MappingProxyType({"password": "x", "n": 1})) == {"n": 1}
