"""Whatever a tool says becomes a storable record or is counted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.tools import CATEGORIES, Category, MalformedRecord, parse_records
from runlane.tools.clean import MAX_DEPTH, clean
from runlane.tools.urls import MalformedUrl, parse_url

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**4_000, max_value=10**5_000)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text()
    | st.text(alphabet=st.characters(categories=["Cs", "Cc", "Lu"]))
    | st.sampled_from(
        ["http://a.test/", "127.0.0.1", "a.test", "tcp", "high", "link", "2020-01-01", "f" * 64]
    )
)
FIELD_NAMES = (
    *(
        "name",
        "records",
        "A",
        "port",
        "protocol",
        "address",
        "banner",
        "tls",
        "url",
        "status",
        "title",
        "headers",
    ),
    *("redirects", "technologies", "depth", "source", "check", "severity", "evidence", "references", "cwe"),
    *("not_after", "san", "body_sha256", "final_url", "version"),
)
KEYS = st.text() | st.sampled_from(FIELD_NAMES)
ANY_JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=30)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(ANY_JSON)
def test_clean_gives_strict_json_that_is_storable_and_stable(value: Any) -> None:
    cleaned = clean(value)

    text = json.dumps(cleaned, allow_nan=False, ensure_ascii=False)
    assert "\x00" not in text.encode("utf-8").decode()
    assert json.loads(text) == cleaned
    assert depth_of(cleaned) <= MAX_DEPTH
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize("category", list(Category))
@given(value=ANY_JSON)
def test_a_reader_gives_a_record_or_says_that_it_is_malformed(category: Category, value: Any) -> None:
    try:
        first = CATEGORIES[category](value)
    except MalformedRecord:
        return
    assert CATEGORIES[category](value) == first


@given(category=st.sampled_from(Category), values=st.lists(ANY_JSON, max_size=10))
def test_every_raw_record_is_either_kept_or_counted(category: Category, values: list[Any]) -> None:
    parsed = parse_records(category, values)

    assert len(parsed.records) + parsed.quarantined == len(values)
    assert len(parsed.sample) == min(parsed.quarantined, 5)


PARTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


@given(path=PARTS, query=PARTS, port=st.integers(0, 70_000) | st.none())
def test_normalising_a_url_twice_changes_nothing(path: str, query: str, port: int | None) -> None:
    authority = "a.test" if port is None else f"a.test:{port}"
    try:
        once = str(parse_url(f"http://{authority}/{path}?{query}"))
    except MalformedUrl:
        return
    assert str(parse_url(once)) == once
    assert once.isascii()
