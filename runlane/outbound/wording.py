"""An event in the words of a message to people. The words that come from outside are plain text in it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from runlane.outbound.transport import Message

MAX_TITLE: Final = 150
MAX_NAME: Final = 60
MAX_VALUE: Final = 300
"""Characters of one value."""

MAX_FACTS: Final = 10
"""Facts of one message; what else there is, the API tells."""

_MAX_LISTED: Final = 5
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[._-]+")
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
"""Controls, and what turns or hides text: a value must not look like another one."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What people are told. All of it is plain text of one line, within the limits of this module."""

    title: str
    facts: tuple[tuple[str, str], ...]
    footer: str


def notice_of(message: Message) -> Notice:
    """The notice of an event, or of a digest of several."""
    body = message.body
    count = "" if message.digest_count == 1 else f"{message.digest_count} × "
    failed = " (failure)" if body.get("outcome") == "failure" else ""
    return Notice(
        title=plain(f"{count}{_words(message.type)}{failed}", MAX_TITLE),
        facts=tuple(_facts(body)),
        footer=plain(f"{message.type} · {body.get('occurredAt')} · {message.event_id}", MAX_VALUE),
    )


def plain(value: object, limit: int) -> str:
    """A value as text of one line without invisible characters, cut to `limit`."""
    # what is far beyond the limit need not be looked through
    text = " ".join(_UNSEEN.sub(" ", str(value)[: 4 * limit]).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _facts(body: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    payload = body.get("payload")
    fields = payload if isinstance(payload, Mapping) else {}
    told = [(plain(_words(str(name)), MAX_NAME), _shown(value)) for name, value in _leaves(fields)]
    where = plain(f"{body.get('resourceType')} {body.get('resourceId') or ''}", MAX_VALUE)
    return [*told[: MAX_FACTS - 1], ("Resource", where)]


def _leaves(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Fields that say something, with those of objects in them."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {inner}", told) for inner, told in value.items() if told not in (None, ""))
        elif value not in (None, "", [], ()):
            yield name, value


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        listed = ", ".join(plain(each, MAX_VALUE) for each in value[:_MAX_LISTED])
        more = len(value) - _MAX_LISTED
        return plain(f"{listed} and {more} more" if more > 0 else listed, MAX_VALUE)
    return plain(value, MAX_VALUE)


def _words(name: str) -> str:
    words = _WORDS.sub(" ", name).strip().lower()
    return words[:1].upper() + words[1:]
