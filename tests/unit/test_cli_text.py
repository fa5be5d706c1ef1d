"""Foreign text on a terminal: everything is seen, nothing is obeyed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.cli.text import age, visible


def test_plain_text_is_left_alone() -> None:
    assert visible("Ünïcode [bold] 200 ✓") == "Ünïcode [bold] 200 ✓"


def test_nothing_is_a_dash() -> None:
    assert visible(None) == "-"


def test_what_a_terminal_obeys_is_shown_by_name() -> None:
    assert visible("\x1b]52;c;aGk=\x07") == "⟦ESC⟧]52;c;aGk=⟦BEL⟧"
    assert visible("a\rb\nc\td\0") == "a⟦CR⟧b⟦LF⟧c⟦TAB⟧d⟦NUL⟧"


def test_what_hides_or_turns_text_is_shown_by_number() -> None:
    assert visible("a\u202eb\u200bc\x9b") == "a⟦U+202E⟧b⟦U+200B⟧c⟦U+009B⟧"
    assert visible("\ud800") == "⟦U+D800⟧"


@given(st.text())
def test_every_text_becomes_printable_and_keeps_what_was_printable(text: str) -> None:
    shown = visible(text)

    assert shown.isprintable() or any(character.isspace() for character in shown)
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)
    shown.encode()


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("2026-11-30T09:59:48Z", "12 s ago"),
        ("2026-11-30T09:57:00.5+00:00", "2 min ago"),
        ("2026-11-30T07:00:00+00:00", "3 h ago"),
    ],
)
def test_age_is_said_as_a_person_does(moment: str, said: str) -> None:
    assert age(moment, datetime(2026, 11, 30, 10, tzinfo=UTC)) == said


def test_age_of_long_ago_and_of_the_future_is_the_day() -> None:
    now = datetime(2026, 11, 30, 10, tzinfo=UTC)

    assert age("2026-11-02T10:00:00Z", now).startswith("2026-11-02")
    assert age("2026-12-05T10:00:00Z", now).startswith("2026-12-05")
