"""What the measurement of times rests on: percentiles, verdicts, and a wire that can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf

import pytest

from tests.chaos.bounds import Times, percentile
from tests.chaos.link import Link


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 10.0), (0.95, 19.0), (0.99, 20.0), (1.0, 20.0)]
)
def test_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(number) for number in range(20, 0, -1)], share) == expected


def test_nothing_measured_is_no_good_time() -> None:
    assert percentile([], 0.5) == inf


@pytest.mark.parametrize(
    ("values", "faults", "holds"),
    [
        ([0.5, 1.0], [], True),
        ([0.5, 1.1], [], False),
        ([0.5], [], False),
        ([0.5, inf], [], False),
        ([0.5, 0.5], ["charged"], False),
    ],
    ids=["within", "beyond", "too few", "never", "fault"],
)
def test_bound_is_missed_by_a_late_a_lacking_and_a_faulty_sample(
    values: list[float], faults: list[str], *, holds: bool
) -> None:
    times = Times("release", bound_s=1.0, share=1.0, least=2, values=values, faults=faults)

    assert times.holds is holds
    assert times.line().startswith("ok" if holds else "MISS")


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(100):
                writer.write(data)
        await closed(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def is_ended(reading: asyncio.Task[bytes]) -> bool:
    try:
        return await reading == b""
    except ConnectionError:
        return True


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_nothing_passes_a_cut_link_and_nobody_is_told_until_it_is_mended() -> None:
    async with echo() as port, Link.to("127.0.0.1", port) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"before")
        assert await reader.read(100) == b"before"

        link.cut()
        writer.write(b"lost")
        reading = asyncio.create_task(reader.read(100))
        done, _ = await asyncio.wait([reading], timeout=0.2)
        assert not done

        link.mend()
        assert await is_ended(reading)
        await closed(writer)

        again, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"after")
        assert await again.read(100) == b"after"
        await closed(writer)
