"""Pictures of web services. Sample: `{"url": "https://a.example.com/", "png": "iVBORw0…"}` (base64)."""

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runlane.tools.records import Fields, MalformedRecord

MAX_PNG_BYTES: Final = 4 * 1024 * 1024
"""A larger picture is refused; one of 1280 by 800 pixels rarely has a quarter of that."""

MAX_SIDE: Final = 16_384
"""Pixels of width or height: what shows pictures must not be asked for gigabytes by their header."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = struct.Struct(">I4sII")


@dataclass(frozen=True, slots=True)
class ScreenshotRecord:
    """The picture of one web service. One for each job; the picture itself is kept as an object."""

    url: str
    host: str
    port: int
    png: bytes
    sha256: bytes
    width: int
    height: int


def parse(raw: object) -> ScreenshotRecord:
    """Reads one record. The picture is looked at as far as its header.

    Raises:
        MalformedRecord: see there.
    """
    if not isinstance(raw, Mapping):
        raise MalformedRecord("a record is an object")
    png = _read_png(raw.get("png"))
    width, height = _size_of(png)
    url = Fields.of({name: value for name, value in raw.items() if name != "png"}).url("url")
    return ScreenshotRecord(str(url), url.host, url.port, png, hashlib.sha256(png).digest(), width, height)


def _read_png(value: object) -> bytes:
    if not isinstance(value, str) or not value or len(value) > MAX_PNG_BYTES * 4 // 3 + 4:
        raise MalformedRecord(f"png: base64 of at most {MAX_PNG_BYTES} bytes expected")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedRecord("png: base64 expected") from error


def _size_of(png: bytes) -> tuple[int, int]:
    head = png[len(_SIGNATURE) : len(_SIGNATURE) + _HEADER.size]
    if not png.startswith(_SIGNATURE) or len(head) < _HEADER.size:
        raise MalformedRecord("png: not a PNG")
    length, kind, width, height = _HEADER.unpack(head)
    if (length, kind) != (13, b"IHDR") or not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        raise MalformedRecord("png: its header cannot be read")
    return width, height
