"""Laws of the scrub that hold for any value."""

import copy
import json
import re
import string

from hypothesis import assume, given
from hypothesis import strategies as st

from runlane.events import scrub, scrub_text
from runlane.events.scrub import is_credential_name

TOKENS = st.text(string.ascii_letters + string.digits + "+/=_-", min_size=40, max_size=60)
SECRETS = st.one_of(
    TOKENS,
    st.text(string.ascii_letters, min_size=1).map(lambda text: f"sk-{text}"),
    st.text(string.ascii_uppercase, min_size=1).map(lambda text: f"AKIA{text}"),
)
KEYS = st.one_of(st.text(max_size=12), st.sampled_from(["password", "apiKey", "note", "id", "sshKey"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), SECRETS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


@given(VALUES)
def test_it_is_idempotent_and_changes_nothing_in_place(value: object) -> None:
    before = copy.deepcopy(value)

    once = scrub(value)

    assert value == before
    assert scrub(once) == once


@given(VALUES)
def test_what_comes_out_is_json(value: object) -> None:
    scrubbed = scrub(value)

    assert json.loads(json.dumps(scrubbed)) == scrubbed


@given(VALUES)
def test_no_key_with_a_credential_name_comes_out(value: object) -> None:
    assert not any(is_credential_name(key) for key in _keys(scrub(value)))


def _keys(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in _keys(inner))]
    if isinstance(value, list):
        return [key for inner in value for key in _keys(inner)]
    return []


@given(SECRETS, st.lists(st.sampled_from(["list", "object"]), max_size=6))
def test_a_secret_is_masked_at_any_depth(secret: str, path: list[str]) -> None:
    value: object = secret
    for kind in path:
        value = [value] if kind == "list" else {"note": value}

    assert secret not in json.dumps(scrub(value))


@given(st.text(" \n,.;:()", max_size=5), SECRETS, st.text(" \n,.;:()", max_size=5))
def test_a_secret_is_masked_inside_a_text(before: str, secret: str, after: str) -> None:
    assume(not secret.startswith("/"))  # what begins like an absolute path is judged between its slashes

    masked = scrub_text(f"said {before} {secret} {after}")

    assert secret not in masked
    assert scrub_text(masked) == masked


@given(st.uuids(), st.sampled_from(["job", "run", "asset", "worker"]), st.integers(0, 10**6))
def test_ids_of_the_platform_survive(uuid: object, kind: str, number: int) -> None:
    for own in (str(uuid), f"{kind}/{uuid}", f"run/{uuid}/a-step/{number}"):
        assert scrub(own) == own
        assert scrub_text(f"[{own}]") == f"[{own}]"


@given(st.text())
def test_text_without_long_words_and_prefixes_is_left_alone(text: str) -> None:
    if not re.search(r"sk-|AKIA|-----BEGIN|\S{40}", text):
        assert scrub_text(text) == text
