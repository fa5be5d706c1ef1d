"""Laws of the scrub that hold for any value."""

import base64
import copy
import json
import re
import string
from random import Random

import orjson
from hypothesis import assume, example, given
from hypothesis import strategies as st

from runlane.events import Redaction, scrub, scrub_argv, scrub_data, scrub_text, use_redaction
from runlane.events.scrub import is_credential_name

LETTERS = string.ascii_letters + string.digits


def _drawn(seed: int, letters: str, size: int) -> str:
    draw = Random(seed)
    return "".join(draw.choice(letters) for _ in range(size))


def _kinds(seed: int) -> list[str]:
    """A secret of each kind, drawn from a number: what Hypothesis makes up itself is too plain for one."""
    raw = Random(seed).randbytes(45)
    text = _drawn(seed, LETTERS, 60)
    return [
        base64.urlsafe_b64encode(raw).decode(),
        base64.b64encode(raw[:31]).decode(),
        base64.b32encode(raw).decode(),
        raw.hex(),
        text[:40],
        f"sk-{text[:20]}",
        f"sk_live_{text[:24]}",
        f"AKIA{text[:16].upper()}",
        f"ASIA{text[:16].upper()}",
        f"ghp_{text[:36]}",
        f"glpat-{text[:20]}",
        f"xoxb-{_drawn(seed, string.digits, 12)}-{text[:24]}",
        f"npm_{text[:36]}",
        f"eyJ{text[:20]}.eyJ{text[20:40]}.{text[40:]}",
        f"{_drawn(seed, string.digits, 9)}:AA{text[:33]}",
        f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----",
    ]


SECRETS = st.builds(lambda seed, at: _kinds(seed)[at], st.integers(0, 2**32), st.integers(0, 15))
SHORT_SECRETS = st.text(LETTERS + "!%+.,~^|", min_size=6, max_size=20).map(lambda text: f"Zq7{text}x")
CREDENTIAL_NAMES = st.sampled_from(
    [
        "password", "apiKey", "X-API-Key", "db_secret", "accessToken", "sshKey", "client-secret",
        "PRIVATE_KEY", "passphrase", "Authorization", "bearer", "tlsCert", "credentials",
        "ｐａｓｓｗｏｒｄ", "sесrеt", "to\u200bken",
    ]
)  # fmt: skip
KEYS = st.one_of(
    st.text(max_size=12), CREDENTIAL_NAMES, st.sampled_from(["note", "id", "sha256", "apiKeyId"])
)
FRAMED = st.builds(
    lambda frame, secret: frame.format(secret),
    st.sampled_from(
        ["password={}", "said {}", "https://u:{}@h/", "Bearer {}", "?token={}&a=1", '"secret": "{}"']
    ),
    SHORT_SECRETS | SECRETS,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), SECRETS, FRAMED),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)
TEXTS = st.one_of(
    st.text(),
    st.text("abAZ01 \t\n\"'\\/:=?&@{}[]().,;-_+*", max_size=80),
    st.lists(st.one_of(SECRETS, FRAMED, st.text(max_size=3)), max_size=5).map("".join),
)
MODES = st.sampled_from(Redaction)


@given(VALUES, MODES)
def test_it_is_idempotent_and_changes_nothing_in_place(value: object, mode: Redaction) -> None:
    before = copy.deepcopy(value)

    once, twice = _scrub_twice(value, mode)

    assert repr(value) == repr(before)  # NaN is not equal to itself
    assert twice == once


def _scrub_twice(value: object, mode: Redaction) -> tuple[object, object]:
    use_redaction(mode)
    try:
        once = scrub(value)
        return once, scrub(once)
    finally:
        use_redaction(Redaction.PRECISE)


@given(TEXTS)
@example("token=token=a&b")
@example("https://u:p@https://u:p@h")
def test_masking_a_text_again_changes_nothing(text: str) -> None:
    once = scrub_text(text)

    assert scrub_text(once) == once
    assert scrub(scrub(text)) == scrub(text)


@given(VALUES)
def test_what_comes_out_is_json(value: object) -> None:
    scrubbed = scrub(value)

    assert json.loads(json.dumps(scrubbed, allow_nan=False)) == scrubbed


@given(VALUES)
def test_no_key_with_a_credential_name_comes_out(value: object) -> None:
    assert not any(is_credential_name(key) for key in _keys(scrub(value)))


def _keys(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in _keys(inner))]
    if isinstance(value, list):
        return [key for inner in value for key in _keys(inner)]
    return []


PLACES = st.lists(st.sampled_from(["list", "object", "key", "blanks"]), max_size=6)


@given(SECRETS, PLACES)
def test_a_planted_secret_survives_at_no_depth(secret: str, places: list[str]) -> None:
    value: object = secret
    for place in places:
        match place:
            case "list":
                value = ["a", value]
            case "object":
                value = {"note": value}
            case "key":
                value = {secret: value}
            case _:
                value = f" {value}\n" if isinstance(value, str) else (value,)

    assert secret not in _text_of(scrub(value))


@given(CREDENTIAL_NAMES, SHORT_SECRETS, PLACES)
def test_nothing_under_the_name_of_a_credential_survives(name: str, secret: str, places: list[str]) -> None:
    value: object = {"kept": 1, name: {"deep": [secret]}}
    for place in places:
        value = [value] if place == "list" else {"note": value, name: secret}

    assert secret not in _text_of(scrub(value))


FRAMES = st.sampled_from(
    [
        "password={}", 'password: "{}"', "'apiKey': '{}'", "?token={}&z=1", "api_secret = {}", "x://u:{}@h/p",
        "Authorization: {}", "Authorization: Bearer {}", "Cookie: s={}", "X-Api-Key: {}",
    ]
)  # fmt: skip


@given(st.text(" \n.;()", max_size=5), SECRETS | SHORT_SECRETS, FRAMES)
def test_what_stands_where_a_credential_belongs_is_masked(before: str, secret: str, frame: str) -> None:
    assume(not ("://" in frame and "/" in secret))  # no part of a URL's authority has one

    masked = scrub_text(f"said {before} {frame.format(secret)} end")

    assert secret not in masked
    assert secret not in _text_of(scrub([f"{before} {frame.format(secret)}"]))


@given(st.text(" \n,.;()", max_size=5), SECRETS, st.text(" \n,.;()", max_size=5))
def test_a_secret_is_masked_inside_a_text(before: str, secret: str, after: str) -> None:
    masked = scrub_text(f"said {before} {secret} {after}")

    assert secret not in masked
    assert secret not in " ".join(scrub_argv(["scan", "--note", f"{before} {secret} {after}", secret]))


def _text_of(value: object) -> str:
    return orjson.dumps(value).decode().replace("\\n", "\n")


@given(st.uuids(), st.sampled_from(["job", "run", "asset", "worker"]), st.integers(0, 10**6))
def test_ids_of_the_platform_survive(uuid: object, kind: str, number: int) -> None:
    for own in (str(uuid), f"{kind}/{uuid}", f"run/{uuid}/a-step/{number}"):
        assert scrub(own) == own
        assert scrub_text(f"[{own}]") == f"[{own}]"


LABELS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12)
HEXES = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(HEXES, st.lists(LABELS, min_size=3, max_size=8), st.uuids(), st.integers(0, 2**120))
def test_what_an_inventory_holds_survives_unchanged(
    digest: str, labels: list[str], uuid: object, number: int
) -> None:
    host = ".".join(labels)
    record = {
        "asset_id": str(uuid),
        "host": host,
        "url": f"https://{host}/{digest}/index.html?page=2",
        "image": f"registry.{host}/scan@sha256:{digest}",
        "certificate": {
            "fingerprint_sha256": digest,
            "serial": f"{number:x}",
            "subject_cn": host,
            "issuer_cn": "Example Authority",
            "san": [host, f"*.{host}"],
            "not_after": "2027-03-01T00:00:00Z",
        },
        "certificateChain": [{"sha256": digest}],
        "hashes": {"body": digest, "favicon": -number},
        "jarm": digest[:62],
        "etag": digest,
        "serial_number": str(number),
    }

    assert scrub(record) == record
    assert scrub_data(record) == record


@given(st.dictionaries(CREDENTIAL_NAMES, st.integers(), max_size=4), st.dictionaries(LABELS, st.integers()))
def test_the_data_of_an_event_names_the_fields_it_lost(lost: dict[str, int], kept: dict[str, int]) -> None:
    data = {"changes": {**kept, **lost}, "metadata": {"a": 1}}

    once = scrub_data(data)

    noted = {"redactedFields": sorted(f"changes.{name}" for name in lost)} if lost else {}
    left = {name: value for name, value in kept.items() if not is_credential_name(name)}
    if left == kept:
        assert once == {"changes": kept, "metadata": {"a": 1, **noted}}
    assert scrub_data(once) == once


@given(st.text())
def test_text_without_long_words_and_prefixes_is_left_alone(text: str) -> None:
    if not re.search(r"sk-|AKIA|-----BEGIN|\S{20}|[=:]|[Bb]earer|[Bb]asic", text):
        assert scrub_text(text) == text
