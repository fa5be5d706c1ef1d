"""The precise redaction rule, case by case."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

import pytest

from runlane.events import scrub, scrub_text
from runlane.events.scrub import CUT_MARK, MAX_DEPTH, MAX_SCANNED

RUN = "01a22ba7-d81b-770c-84aa-4d540b75ff15"
TOKEN = "q8Zt" * 12
HEX = "af09" * 16
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
SRI = "sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"


@pytest.mark.parametrize(
    "name",
    [
        "secret", "clientSecret", "token", "nextPageToken", "csrfToken", "pageToken", "password",
        "DB_PASSWORD", "db_password", "credentials", "api_key", "apiKey", "x-api-key", "myapikey2",
        "private_key", "privateKey", "access key", "AWS_SECRET_ACCESS_KEY", "Authorization", "bearer",
        "passphrase", "cert", "clientCert",
        "tls_cert", "ssh_key", "sshKey", "secret_id", "password_hash", "Set-Cookie", "refreshToken", "pwd",
        "PassWord", "aPiKeY", "apiKEYs", "oauth2token", "signing-keys", "secretName",
        "ｐａｓｓｗｏｒｄ", "pass\u200bword", "pаsswоrd", "ΤΟΚΕΝ", "pássword",
    ],
)  # fmt: skip
def test_a_field_with_the_name_of_a_credential_is_dropped(name: str) -> None:
    assert scrub({name: "x", "kept": [{name: {"deep": 1}, "also": 2}]}) == {"kept": [{"also": 2}]}


@pytest.mark.parametrize(
    "name",
    [
        "key_id", "name", "monkey", "public_key", "keyboard", "scopes", "passport_number", "tokenizer",
        "maxTokens", "secretary", "concerts", "certificate", "certificateChain", "certExpiry", "cert_sha256",
        "apiKeyId", "accessKeyId", "passwordChangedAt", "tokenCount", "tokenType", "token_endpoint",
    ],
)  # fmt: skip
def test_a_field_with_another_name_is_kept(name: str) -> None:
    assert scrub({name: {"subject": "x"}}) == {name: {"subject": "x"}}


@pytest.mark.parametrize(
    "value",
    [
        "sk-1", "AKIAIOSFODNN7EXAMPLE", "-----BEGIN PRIVATE KEY-----\nMIIB", TOKEN, "a" * 40, "X" * 40,
        "  sk-1", "\nAKIA1", f" {TOKEN}\n", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "ASIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_pat_11AAAAAAA0abcdefghij_abcdefghij",
        "glpat-abcdefghij0123456789", "xoxb-1234567890-abcdef", JWT,
        "123456789:AAF1234567890abcdefghijklmnopqrstuv",
        "rl_abcdefghjk23_0123456789-abcdefghijklmnopqrstuvwxyz_ABCDE", HEX, "q8Zt/" * 160,
    ],
)  # fmt: skip
def test_a_value_that_looks_like_a_credential_is_masked(value: str) -> None:
    assert scrub({"v": value, "list": [value, [value]]}) == {"v": "***", "list": ["***", ["***"]]}
    assert scrub_text(value).strip() == "***"


@pytest.mark.parametrize(
    "value",
    [
        RUN,
        f"run/{RUN}",
        f"run/{RUN}/ports/12",
        f"scan.{RUN}.probe",
        "a" * 39,
        "0" * 45,
        SRI,
        "task-risk-desk",
        "SK-2024-REPORT-Q3",
        "internet-facing-load-balancer-production-eu-west-one",
        "checkout-service-production-7d4b9c6f5-x2x9p",
        "edge-gateway-04.internal.production.eu-west-1.example.test",
        "/static/js/vendor/react/dist/production/react-dom",
        f"https://cdn.example.test/assets/{HEX}.js",
        f"registry.example.test/scan@sha256:{HEX}",
        "http://app.lab.test:8080/a/very/long/path/that/goes/on/and/on/for/ever",
        "http://app.lab.test:80/x@y?page=2&code_page=utf8",
        "a sentence of some length that says nothing of any importance to anybody",
        "Basic authentication is required, bearer tokens are not",
        "error in token: unexpected end",
        "=" * 60,
        "2026-11-30T10:00:00.000000Z",
        "",
        "***",
        "REDACTED",
    ],
)
def test_ids_names_addresses_and_ordinary_text_survive(value: str) -> None:
    assert scrub({"v": value}) == {"v": value}
    assert scrub_text(value) == value


@pytest.mark.parametrize(
    "name", ["sha256", "fingerprint_sha256", "jarm", "commit", "bodyHash", "serial", "md5", "etag"]
)
def test_a_hash_survives_under_the_name_of_one(name: str) -> None:
    for value in ({name: HEX}, {name: [HEX]}, {name: {"body": HEX}}):
        assert scrub(value) == value

    assert scrub({name: {"body": {"v": HEX}}, "v": HEX, name * 2: TOKEN}) == {
        name: {"body": {"v": "***"}},
        "v": "***",
        name * 2: "***",
    }


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://bob:pw@db/x", "postgres://bob:***@db/x"),
        ("redis://:p@ss@cache:6379/0", "redis://:***@cache:6379/0"),
        ("https://abcdefghijklmnopqrst0@git.test/x", "https://***@git.test/x"),
        ('curl -H "Authorization: Bearer abc" x', 'curl -H "Authorization: Bearer ***" x'),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("answered Bearer dXNlcjpwYXNz", "answered Bearer ***"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("?api_key=abc&z=1", "?api_key=***&z=1"),
        (
            "https://h.test/a?z=1&X-Amz-Signature=abc&sig=abc",
            "https://h.test/a?z=1&X-Amz-Signature=***&sig=***",
        ),
        ("https://hooks.slack.com/services/T0/B0/XX", "https://hooks.slack.com/***"),
        ("https://discord.com/api/webhooks/1/XX", "https://discord.com/***"),
        ("https://api.telegram.org/bot123:abc/sendMessage", "https://api.telegram.org/***"),
        ("password=hunter2 host=db", "password=*** host=db"),
        ("{'password': 'hunter2', 'a': 1}", "{'password': '***', 'a': 1}"),
        ('{"token": 123, "a": {"secret": {"b": "c"}}}', '{"token": ***, "a": {"secret": ***}}'),
        ("{'Authorization': 'Bearer abc', 'a': 1}", "{'Authorization': 'Bearer ***', 'a': 1}"),
        ('{"credentials": {"a": [{"b": "c"}]}, "d": 1}', '{"credentials": ***, "d": 1}'),
        (r'said "{\"token\":\"abc\",\"a\":1}"', r'said "{\"token\":\"***\",\"a\":1}"'),
        (f"key {JWT} refused", "key *** refused"),
        ("pem\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest", "pem\n***\nrest"),
        ("cut -----BEGIN RSA PRIVATE KEY-----\nMIIB", "cut ***"),
    ],
)
def test_a_credential_inside_a_text_is_masked_and_its_frame_stays(text: str, masked: str) -> None:
    assert scrub({"v": text}) == {"v": masked}
    assert scrub_text(text) == masked
    assert scrub_text(masked) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-abc refused", "key *** refused"),
        ("(AKIA1234)", "(***)"),
        (f"said {TOKEN}, again {TOKEN}.", "said ***, again ***."),
        (f"job_id={RUN} run=run/{RUN}/ports", None),
        (f"{TOKEN}run/{RUN}", "***"),
        ("disk-full at task-sk", None),
        (f"GET http://h/a?key={TOKEN}&n=1 failed", "GET http://h/a?key=***&n=1 failed"),
        (f"https://hooks.test/{TOKEN}", "https://hooks.test/***"),
        ("no file /srv/data/application/releases/current/config/settings", None),
        (f"no file /srv/{TOKEN}/x", "no file /srv/***/x"),
        ("aws /JalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEYx", "aws ***"),
        (f"no file /var/lib/{HEX}/{RUN}/merged/4f2a9c/a.log", None),
        ("aws wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws ***"),
        (f"subject: lab.test, SHA-256 {HEX}", None),
        (f"sha256={HEX} digest: {HEX} commit '{HEX}'", None),
        (f"read {HEX}", "read ***"),
    ],
)
def test_words_that_look_like_tokens_are_masked_inside_a_text(text: str, masked: str | None) -> None:
    assert scrub_text(text) == (text if masked is None else masked)


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
        "nan": float("nan"),
        "inf": float("-inf"),
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
        "nan": None,
        "inf": None,
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


def test_a_mapping_of_any_kind_is_walked() -> None:
    assert scrub(MappingProxyType({"password": "x", "n": 1})) == {"n": 1}


def test_the_end_of_a_very_long_text_is_dropped_with_a_mark() -> None:
    long = "word " * MAX_SCANNED

    for cut in (scrub_text(long), scrub(long)):
        assert isinstance(cut, str)
        assert len(cut) <= MAX_SCANNED
        assert cut.endswith(CUT_MARK)
        assert scrub(cut) == scrub_text(cut) == cut


def test_a_text_that_masks_make_too_long_is_cut_once() -> None:
    once = scrub_text("token=a&" * (MAX_SCANNED // 8))

    assert once.endswith(CUT_MARK)
    assert scrub_text(once) == once


@pytest.mark.parametrize("rule", [scrub, scrub_text])
@pytest.mark.parametrize(
    "pattern",
    [
        *("bearer ", "a-", "a=", "a=,", "password=", 'password="', '"a":', "://", "://a:", "x://a:b", "a:b@"),
        *("-----BEGIN", "-----END", "sk-", "eyJ", "eyJaaaaaaaaaaaaaaaa.", "/a", "A", "_", "Basic aaaaaa"),
        *("https://hooks.slack.com/", "cookie:", "{", "token={", "token=[", "token=\\", "sha256 ", "Aa1_"),
    ],
)
def test_hostile_text_is_read_in_time_linear_in_its_length(
    rule: Callable[[str], object], pattern: str
) -> None:
    def cost(length: int) -> float:
        text = (pattern * length)[:length]
        started = time.process_time()
        rule(text)
        return time.process_time() - started

    def growth() -> float:
        return cost(MAX_SCANNED) / max(cost(MAX_SCANNED // 8), 0.001)

    # 8 when linear, 64 when quadratic; a busy machine disturbs one measurement, not each of them
    assert any(growth() <= 24 for _ in range(5))


def test_names_without_end_are_read_in_time_linear_in_their_length() -> None:
    for name in ("aA" * 40_000, "key_" * 20_000, "é" * 80_000):
        assert len(scrub({name: 1})) <= 1
