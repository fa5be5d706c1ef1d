"""Host names and addresses in the one spelling that is compared, stored and put on the wire."""

import re
from typing import Final

import idna

from runlane.tools.addresses import parse_address, unwrap

MAX_NAME: Final = 253
"""Characters of a domain name without the trailing dot. Source: RFC 1035 §2.3.4."""

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SERVICE_LABEL: Final = re.compile(r"_?[a-z0-9](?:[a-z0-9_-]{0,60}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class MalformedHost(ValueError):
    """The text is neither a domain name nor an address in its usual notation."""


def normalise_name(text: str, *, underscores: bool = False) -> str:
    """Domain name in ASCII (IDNA 2008 with UTS 46 mapping), lower case, without trailing dot.

    `underscores` admits names such as `_dmarc.example.com`, which exist in DNS but are no host names.

    Raises:
        MalformedHost: no domain name, or one that a resolver may read as an address (`127.1`, `0x7f.1`).
    """
    if not text or len(text) > MAX_NAME + 1:
        raise MalformedHost("a name has 1 to 253 characters")
    name = _to_ascii(text).lower().removesuffix(".")
    if not name or len(name) > MAX_NAME:
        raise MalformedHost("a name has 1 to 253 characters")
    labels = name.split(".")
    pattern = _SERVICE_LABEL if underscores else _LABEL
    if not all(pattern.fullmatch(label) for label in labels):
        raise MalformedHost("a label has 1 to 63 letters, digits or inner hyphens")
    if _NUMBER.fullmatch(labels[-1]):
        raise MalformedHost("a name whose last label is a number can be taken for an address")
    return name


def normalise_host(text: str) -> str:
    """Name or address in canonical text; an IPv4-mapped address becomes the IPv4 one.

    Raises:
        MalformedHost: neither of both.
    """
    address = parse_address(text.removeprefix("[").removesuffix("]"))
    if address is None:
        return normalise_name(text, underscores=True)
    mapped = address.version == 6 and address.ipv4_mapped is not None
    return str(unwrap(address) if mapped else address)


def is_under(name: str, zone: str) -> bool:
    """Whether `name` is `zone` or below it. Both must be normalised."""
    return name == zone or name.endswith(f".{zone}")


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError as error:
        raise MalformedHost("not a valid internationalised name") from error
