"""Values of tools made storable: size, depth, numbers and text."""

import json
from typing import Any

import pytest

from runlane.tools.clean import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_STRING_BYTES,
    MAX_TOTAL_BYTES,
    clean,
    clean_text,
)


def test_nul_and_lone_surrogates_become_replacement_characters() -> None:
    assert clean({"a\x00": "b\ud800\udc00c\x00"}) == {"a\ufffd": "b\ufffd\ufffdc\ufffd"}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_become_null(number: float) -> None:
    assert clean([number]) == [None]


def test_integers_beyond_64_bit_become_text() -> None:
    assert clean([2**63 - 1, -(2**63), 2**63, -(2**63) - 1]) == [
        2**63 - 1,
        -(2**63),
        "9223372036854775808",
        "-9223372036854775809",
    ]


def test_an_integer_too_long_to_print_does_not_raise() -> None:
    assert clean(10**100_000) == "integer of 332193 bits"


def test_deep_nesting_is_cut_without_recursion_error() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]

    cut = json.dumps(clean(value))

    assert cut == "[" * MAX_DEPTH + "null" + "]" * MAX_DEPTH


def test_long_strings_are_cut_at_a_character_border() -> None:
    text = clean("é" * MAX_STRING_BYTES)

    assert isinstance(text, str)
    assert len(text.encode()) == MAX_STRING_BYTES
    assert set(text) == {"é"}


def test_long_lists_and_objects_are_cut() -> None:
    assert clean([0] * (MAX_ITEMS + 1)) == [0] * MAX_ITEMS
    many = clean({str(n): n for n in range(MAX_ITEMS + 1)})
    assert isinstance(many, dict)
    assert len(many) == MAX_ITEMS


def test_the_whole_is_bounded_even_when_each_part_is_small_enough() -> None:
    value = clean([["x" * 60_000] * 100] * 100)

    assert len(json.dumps(value)) < MAX_TOTAL_BYTES * 1.01


def test_what_is_not_json_becomes_null() -> None:
    assert clean([b"x", {1}, object(), (1, 2)]) == [None, None, None, [1, 2]]


def test_clean_text_keeps_ordinary_text() -> None:
    assert clean_text("plain — text", 100) == "plain — text"
    assert clean_text("日本", 4) == "日"
