"""Response bodies within bounds: bytes are counted after decompression, as they come out."""

import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS

Decompressor: TypeAlias = Callable[[bytes, int], bytes]
"""Takes the next piece, gives at most so many bytes of what it stands for."""


class BoundedBody:
    """Collects at most `limit` bytes of a body with the given Content-Encoding.

    A bomb of a thousand times its size in zeros costs `limit`, not its size. An encoding that was not asked
    for is kept as it came.
    """

    def __init__(self, limit: int, encoding: str) -> None:
        self._limit = limit
        self._encoding = encoding.strip().lower()
        self._decompressor = _decompressor(self._encoding)
        self._bytes = bytearray()
        self.is_cut = False
        """Whether there was more than the limit, or the compressed form was broken."""

    def feed(self, chunk: bytes) -> bool:
        """Takes the next piece as received; False when no more is wanted."""
        if self._decompressor is None:
            self._take(chunk)
            return not self.is_cut
        try:
            self._take(self._inflate(self._decompressor, chunk))
        except zlib.error:
            self.is_cut = True
        return not self.is_cut

    def value(self) -> bytes:
        """What has come so far."""
        return bytes(self._bytes)

    def _take(self, data: bytes) -> None:
        room = self._limit - len(self._bytes)
        self._bytes += data[:room]
        self.is_cut = len(data) > room

    def _inflate(self, decompressor: Decompressor, chunk: bytes) -> bytes:
        room = self._limit - len(self._bytes) + 1
        try:
            return decompressor(chunk, room)
        except zlib.error:
            if self._encoding != "deflate" or self._bytes:
                raise
            # "deflate" means zlib, but some servers send the bare form
            bare = zlib.decompressobj(_RAW_DEFLATE).decompress
            self._decompressor = bare
            return bare(chunk, room)


def _decompressor(encoding: str) -> Decompressor | None:
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress
    return None
