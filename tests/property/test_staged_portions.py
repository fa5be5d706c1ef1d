"""Long lists of records are cut where one may cut them, whatever the records hold."""

from collections.abc import Iterator
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.tools import staged

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\{}[],'), inner, max_size=3),
    max_leaves=8,
)
records = st.lists(values | st.dictionaries(st.text('ab"\\{}[],'), values), max_size=9)


@pytest.fixture(scope="module", autouse=True)
def small_portions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged, "PORTION", 2)
        yield


def read(text: bytes, start: int, end: int) -> list[list[object]]:
    return [orjson.loads(b"[" + text[a:b] + b"]") for a, b in staged.portions(text, start, end)]


@given(records, st.binary(max_size=5))
def test_portions_are_the_list(given_records: list[object], around: bytes) -> None:
    text = orjson.dumps(given_records)[1:-1]

    found = read(around + text + around, len(around), len(around) + len(text))

    assert [each for portion in found for each in portion] == given_records
    assert all(sum(isinstance(each, dict | list) for each in portion) <= 2 for portion in found)


@given(st.binary())
def test_any_bytes_are_cut_in_order_or_refused(text: bytes) -> None:
    try:
        cuts = list(staged.portions(text, 0, len(text)))
    except ValueError:
        return

    assert all(text[end:start].strip(b" \t\r") == b"," for (_, end), (start, _) in pairwise(cuts))
    assert text[: cuts[0][0]] == b"" if cuts else text == b""
