"""Output of containers and programs means the same, however it is cut on its way."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from runlane.containers.frames import Frames
from runlane.scan.splitting import MAX_LINE_BYTES, Splitter

pieces = st.lists(st.tuples(st.booleans(), st.binary(min_size=0, max_size=40)), max_size=20)
cuts = st.lists(st.integers(min_value=1, max_value=30), min_size=1, max_size=20)


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, over and over."""
    found = []
    while data:
        for size in sizes:
            found.append(data[:size])
            data = data[size:]
    return [chunk for chunk in found if chunk]


@given(pieces, cuts)
def test_streams_of_a_container_are_told_apart_however_they_arrive(
    sent: list[tuple[bool, bytes]], sizes: list[int]
) -> None:
    data = b"".join(struct.pack(">BxxxL", 2 if bad else 1, len(text)) + text for bad, text in sent)
    frames = Frames()

    got = [piece for chunk in chunks(data, sizes) for piece in frames.feed(chunk)]

    for is_diagnostics in (False, True):
        assert b"".join(text for bad, text in got if bad is is_diagnostics) == b"".join(
            text for bad, text in sent if bad is is_diagnostics
        )


@given(st.binary(max_size=300), cuts)
def test_lines_are_the_same_however_they_arrive(output: bytes, sizes: list[int]) -> None:
    splitter = Splitter(1_000)

    lines = [line for chunk in chunks(output, sizes) for line in splitter.feed(chunk)]

    whole = output.split(b"\n")
    assert lines + splitter.rest() == (whole if whole[-1] else whole[:-1])
    assert not splitter.is_over


def test_too_much_output_and_too_long_a_line_are_over() -> None:
    much, long = Splitter(3), Splitter(MAX_LINE_BYTES * 2)

    assert much.feed(b"ab\ncd\n") == []
    assert long.feed(b"x" * (MAX_LINE_BYTES + 1)) == []
    assert much.is_over
    assert long.is_over
