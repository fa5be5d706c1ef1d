"""What leaves a batch holds no secret, however a tool repeats it."""

import json
from base64 import b64encode
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from runlane.jobs import Outcome
from runlane.scan.masks import MASK, PIECE, Masks
from runlane.scan.wire import Member
from runlane.secret_refs import names_in, resolved

SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=PIECE, max_size=60)
AROUND = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
NAMES = st.sampled_from(["a", "b", "c"])
OPTIONS = st.recursive(
    st.none() | st.integers() | st.text(max_size=9) | NAMES.map(lambda name: {"secret_ref": name}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(AROUND, SECRETS, AROUND)
def test_secret_is_masked_as_it_is_and_as_others_spell_it(before: str, secret: str, after: str) -> None:
    masks = Masks([secret])
    of_go = json.dumps(secret).translate({ord(each): f"\\u{ord(each):04x}" for each in "<>&"})

    for spelt in (
        secret,
        json.dumps(secret),
        of_go,
        quote(secret, safe=""),
        b64encode(secret.encode()).decode(),
    ):
        assert spelt.strip('"') not in masks.text(f"{before}{spelt}{after}").replace(MASK, "\0")
        line = masks.line(f"{before} {spelt} {after}".encode())
        assert spelt.strip('"').encode() not in line.replace(MASK.encode(), b"\0")


@given(AROUND, SECRETS, st.data())
def test_error_that_was_cut_in_a_secret_shows_no_piece_of_it(
    before: str, secret: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(secret) - PIECE))
    cut = secret[start : start + data.draw(st.integers(PIECE, len(secret) - start))]

    shown = Masks([secret]).text(f"{before}: {cut}")

    pieces = {secret[at : at + PIECE] for at in range(len(secret) - PIECE + 1)}
    assert not any(piece in shown.replace(MASK, "\0") for piece in pieces)


@given(AROUND, AROUND)
def test_batch_without_secrets_passes_as_it_is(text: str, record: str) -> None:
    member = Member("job", 1, Outcome.COMPLETED, text, records=(record.encode(),), argv=(text,))

    assert Masks().member(member) is member
    assert Masks([]).text(text) == text


@given(SECRETS)
def test_all_that_is_said_of_a_job_is_masked(secret: str) -> None:
    record = json.dumps({"title": f"hello {secret}"}).encode()
    member = Member(
        "job", 1, Outcome.TOOL_FAILED, f"no: {secret}", True, True, {"url": secret}, (record,), ("x", secret)
    )

    masked = Masks([f"Bearer {secret}"]).member(member)

    assert (masked.error, masked.argv, masked.coverage) == (f"no: {MASK}", ("x", MASK), {"url": MASK})
    assert json.loads(masked.records[0]) == {"title": f"hello {MASK}"}


@given(st.text("0123456789", min_size=PIECE, max_size=18).filter(lambda digits: digits[0] != "0"))
def test_secret_of_digits_is_masked_in_numbers_and_leaves_json(secret: str) -> None:
    record = b'{"length":%b,"title":"no %b"}' % (secret.encode(), secret.encode())
    coverage = {"port": int(secret), "at": [f"{secret}.test", 1, None]}
    member = Member("job", 1, Outcome.COMPLETED, None, True, True, coverage, (record,))

    masked = Masks([secret]).member(member)

    assert masked.coverage == {"port": MASK, "at": [f"{MASK}.test", 1, None]}
    assert json.loads(masked.records[0]) == {"length": MASK, "title": f"no {MASK}"}


@given(OPTIONS)
def test_options_are_resolved_wherever_they_refer_to_a_secret(options: object) -> None:
    values = {name: f"value of {name}" for name in names_in(options)}

    done = resolved(options, values)

    assert names_in(done) == frozenset()
    assert all(json.dumps(value) in json.dumps(done) for value in values.values())
    assert resolved(options, {}) == options
