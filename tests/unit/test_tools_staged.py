"""Lines of one job, picked from the result of a whole batch."""

import pytest

from runlane.tools.staged import TooManyBytes, own_lines

OWN = b'{"job":"a","attempt":1,"records":[{"n":1}]}\n'
OTHERS = b'{"job":"b","attempt":1,"records":["{\\"job\\":\\"a\\",\\"attempt\\":1,"]}\n'
BEGINS = b'{"job":"a","attempt":1,'


def test_only_own_lines_of_the_attempt_are_kept() -> None:
    body = OTHERS + OWN + OTHERS + OWN + b'{"job":"a","attempt":12,"records":[]}'

    assert own_lines(body, BEGINS, 1_000) == OWN + OWN
    assert own_lines(OTHERS, BEGINS, 1_000) == b""


def test_line_without_a_newline_at_the_end_is_a_line() -> None:
    assert own_lines(OTHERS + OWN[:-1], BEGINS, 1_000) == OWN[:-1]


def test_more_than_wanted_is_refused() -> None:
    with pytest.raises(TooManyBytes):
        own_lines(OWN + OWN, BEGINS, len(OWN))
