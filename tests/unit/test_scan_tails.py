"""Rings of recent lines: bounded, and sent only while somebody looks."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from runlane.errors import Unavailable
from runlane.scan.tails import MAX_BYTES, MAX_LINE, MAX_LINES, Tails
from tests.waiting import until


class Api:
    """Takes what is sent; the first sendings fail as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sent: list[tuple[str, int, int, list[str]]] = []

    async def tail(self, job_id: str, attempt: int, first: int, lines: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        self.sent.append((job_id, attempt, first, list(lines)))


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def tails(api: Api) -> AsyncIterator[Tails]:
    tails = Tails()
    sending = asyncio.create_task(tails.send_forever(api))
    yield tails
    sending.cancel()
    await asyncio.wait([sending])


async def test_remembered_lines_come_first_then_each_new_one_once(api: Api, tails: Tails) -> None:
    tails.open([("a", 1)])
    tails.hear(("a", 1), b"one")
    tails.hear(("a", 2), b"of another attempt")
    tails.ask("a", 1, is_new=True)
    await until(lambda: len(api.sent) == 1)
    tails.hear(("a", 1), b"two")
    await until(lambda: len(api.sent) == 2)

    assert api.sent == [("a", 1, 0, ["one"]), ("a", 1, 1, ["two"])]


async def test_nothing_is_sent_that_nobody_asked_for(api: Api, tails: Tails) -> None:
    tails.open([("a", 1), ("b", 1)])
    for key in (("a", 1), ("b", 1)):
        tails.hear(key, b"line")
    tails.ask("b", 1, is_new=True)
    tails.ask("c", 1, is_new=True)  # not in hand
    await until(lambda: bool(api.sent))

    assert api.sent == [("b", 1, 0, ["line"])]


async def test_last_lines_of_a_job_that_has_ended_are_sent(api: Api, tails: Tails) -> None:
    tails.open([("a", 1)])
    tails.ask("a", 1, is_new=True)
    tails.hear(("a", 1), b"last words")
    tails.close([("a", 1)])
    await until(lambda: bool(api.sent))

    assert api.sent == [("a", 1, 0, ["last words"])]


async def test_chatty_job_is_remembered_by_its_end_only(api: Api, tails: Tails) -> None:
    tails.open([("a", 1), ("b", 1)])
    for number in range(10 * MAX_LINES):
        tails.hear(("a", 1), b"%d" % number)
    for _ in range(100):
        tails.hear(("b", 1), b"\xff" * 10 * MAX_LINE)
    tails.ask("a", 1, is_new=True)
    tails.ask("b", 1, is_new=True)
    await until(lambda: len(api.sent) == 2)

    (_, _, first, lines), (_, _, _, wide) = api.sent
    assert (first, len(lines), lines[-1]) == (9 * MAX_LINES, MAX_LINES, str(10 * MAX_LINES - 1))
    assert all(len(line) == MAX_LINE for line in wide)
    assert len(wide) <= MAX_BYTES // MAX_LINE


async def test_api_that_is_away_costs_lines_and_nothing_else(api: Api, tails: Tails) -> None:
    api.failures = 1
    tails.open([("a", 1)])
    tails.hear(("a", 1), b"one")
    tails.ask("a", 1, is_new=True)
    await until(lambda: api.failures == 0)
    tails.hear(("a", 1), b"two")
    await until(lambda: bool(api.sent))

    assert api.sent == [("a", 1, 1, ["two"])]
