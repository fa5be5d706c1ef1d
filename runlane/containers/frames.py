"""How an engine sends both outputs of a container over one connection. Pure.

Each piece comes behind a header of eight bytes: which stream it is of, and how long it is.
"""

import struct
from typing import Final

_HEADER: Final = struct.Struct(">BxxxL")
_STDERR: Final = 2


class Frames:
    """Takes the connection's bytes as they come, and tells the two outputs apart."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._is_diagnostics = False

    def feed(self, data: bytes) -> list[tuple[bool, bytes]]:
        """The pieces of output in these bytes, each with whether it is diagnostics."""
        pieces: list[tuple[bool, bytes]] = []
        while data:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                pieces.append((self._is_diagnostics, piece))
                continue
            missing = _HEADER.size - len(self._head)
            self._head, data = self._head + data[:missing], data[missing:]
            if len(self._head) == _HEADER.size:
                stream, self._left = _HEADER.unpack(self._head)
                self._is_diagnostics = stream == _STDERR
                self._head = b""
        return pieces
