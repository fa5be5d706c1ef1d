"""Output of a tool, cut into lines and bounded. Pure."""

from typing import Final

MAX_LINE_BYTES: Final = 1024 * 1024
"""Longest line of output; a tool that writes a longer one is ended."""


class Splitter:
    """Cuts what is fed into lines, until it is too much."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest = b""
        self.heard_bytes = 0
        """All output so far."""

    @property
    def is_over(self) -> bool:
        """Whether there was more output, or a longer line, than is taken."""
        return self.heard_bytes > self._most_bytes or len(self._rest) > MAX_LINE_BYTES

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, without their newlines; none once it is too much."""
        self.heard_bytes += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [] if self.is_over else lines

    def rest(self) -> list[bytes]:
        """The last line, if it has no newline."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
