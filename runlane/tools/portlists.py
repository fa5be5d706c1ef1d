"""Port lists: how they are written, and the one that is scanned when none is given."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

MAX_PORT: Final = 65_535

DEFAULT_PORTS: Final = (
    *(
        21,
        22,
        23,
        25,
        53,
        80,
        81,
        88,
        110,
        111,
        135,
        139,
        143,
        161,
        179,
        389,
        443,
        445,
        465,
        514,
        515,
        548,
        554,
    ),
    *(
        587,
        631,
        636,
        873,
        902,
        990,
        993,
        995,
        1080,
        1099,
        1194,
        1433,
        1521,
        1723,
        1883,
        2049,
        2082,
        2083,
        2181,
    ),
    *(
        2222,
        2375,
        2376,
        2379,
        3000,
        3128,
        3306,
        3389,
        4000,
        4369,
        4443,
        4444,
        4848,
        5000,
        5060,
        5222,
        5432,
        5555,
    ),
    *(
        5601,
        5672,
        5900,
        5984,
        5985,
        5986,
        6000,
        6379,
        6443,
        7000,
        7001,
        7070,
        7474,
        8000,
        8008,
        8009,
        8080,
        8081,
    ),
    *(
        8082,
        8083,
        8086,
        8088,
        8089,
        8090,
        8123,
        8161,
        8200,
        8291,
        8333,
        8443,
        8500,
        8800,
        8834,
        8880,
        8888,
        8983,
    ),
    *(
        9000,
        9001,
        9042,
        9090,
        9091,
        9092,
        9100,
        9200,
        9300,
        9418,
        9443,
        9999,
        10000,
        10250,
        11211,
        15672,
        27017,
    ),
    *(50000, 50070),
)
"""Ports of services that are often left open by mistake, and of the usual ones."""


Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Both ends included, sorted, with a gap between any two."""


class MalformedPorts(ValueError):
    """The value is no list of ports."""


def parse_ports(value: object) -> list[int]:
    """Reads `"1-1024,8080"`, a list of numbers and ranges, or null for the default; sorted, each port once.

    Raises:
        MalformedPorts: something else, an empty list, or a port outside 1 to 65535.
    """
    if value is None:
        return sorted(DEFAULT_PORTS)
    return [port for low, high in parse_ranges(value) for port in range(low, high + 1)]


def parse_ranges(value: object) -> Ranges:
    """Reads `"1-1024,8080"`, or a list of numbers and ranges, without naming each port.

    Raises:
        MalformedPorts: something else, an empty list, or a port outside 1 to 65535.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or len(parts) > MAX_PORT:
        raise MalformedPorts("ports and ranges expected, such as 1-1024,8080")
    joined: list[tuple[int, int]] = []
    for low, high in sorted(map(_parse_part, parts)):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def format_ports(ports: Sequence[int]) -> str:
    """The shortest text for a sorted list of ports: `1-1024,8080`."""
    starts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ports)) if b != a + 1), len(ports)]
    ranges = [(ports[start], ports[end - 1]) for start, end in pairwise(starts) if start < end]
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _parse_part(part: object) -> tuple[int, int]:
    text = str(part) if isinstance(part, int) and not isinstance(part, bool) else part
    if not isinstance(text, str):
        raise MalformedPorts("a port is a number")
    low_text, dash, high_text = text.strip().partition("-")
    low = _parse_port(low_text)
    high = _parse_port(high_text) if dash else low
    if low > high:
        raise MalformedPorts(f"{text.strip()[:20]} runs backwards")
    return low, high


def _parse_port(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_PORT):
        raise MalformedPorts(f"{text[:20]!r} is not a port")
    return int(text)
