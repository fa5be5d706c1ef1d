"""Tags and title of an HTML page, in time linear in its length.

The standard library's parser takes minutes for 64 KB of `<a <a <a …`; a hostile page must not freeze the jobs
beside it. What is read here is what a browser would see in ordinary pages, and never more than the limits.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_TEXT: Final = 512 * 1024
"""Characters of a page that are looked at."""

MAX_MARKUP: Final = 50_000
"""Tags, end tags and comments of a page that are looked at."""

MAX_ATTRIBUTES: Final = 50
MAX_VALUE: Final = 4_000
"""Characters of an attribute's value or of the title; the decoder of entities fails at longer numbers."""

_MARKUP: Final = re.compile(r"<[a-zA-Z/!?]")
_TAG_NAME: Final = re.compile(r"[a-zA-Z][^\s/>]{0,50}")
_BETWEEN: Final = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME: Final = re.compile(r"=?[^\s/>=]*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_BARE_VALUE: Final = re.compile(r"[^\s>]*")
_RAW_TEXT_ENDS: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "noembed")
}


@dataclass(frozen=True, slots=True)
class Tag:
    """One start tag: names in lower case, values decoded; the first of equal attributes counts."""

    name: str
    attributes: Mapping[str, str]


@dataclass(slots=True)
class Page:
    """What was read of a page."""

    title: str | None = None
    """Of the first title element, white space collapsed; None if absent or empty."""
    tags: list[Tag] = field(default_factory=list)
    """In document order."""


def read_page(text: str) -> Page:
    """Reads a page; never raises."""
    text = text[:MAX_TEXT]
    page = Page()
    position = 0
    for _ in range(MAX_MARKUP):
        markup = _MARKUP.search(text, position)
        if markup is None:
            break
        position = _read_markup(text, markup.start(), page)
    return page


def _read_markup(text: str, start: int, page: Page) -> int:
    """Reads what begins at the `<` at `start`; returns where to go on."""
    if text.startswith("<!--", start):
        return _after(text, "-->", start + 4)
    if text.startswith(("<!", "<?", "</"), start):
        return _after(text, ">", start + 2)
    name_end = _skip(_TAG_NAME, text, start + 1)
    tag_name = text[start + 1 : name_end].lower()
    attributes, end = _read_attributes(text, name_end)
    page.tags.append(Tag(tag_name, attributes))
    if tag_name not in _RAW_TEXT_ENDS:
        return end
    closing = _RAW_TEXT_ENDS[tag_name].search(text, end)
    content_end = closing.start() if closing else len(text)
    if tag_name == "title" and page.title is None:
        page.title = " ".join(html.unescape(text[end:content_end][:MAX_VALUE]).split()) or None
    return content_end


def _read_attributes(text: str, position: int) -> tuple[dict[str, str], int]:
    """Attributes from `position` to the tag's `>`; an unfinished tag ends with the text, as in browsers."""
    attributes: dict[str, str] = {}
    for _ in range(MAX_ATTRIBUTES):
        position = _skip(_BETWEEN, text, position)
        if position >= len(text):
            return attributes, len(text)
        if text[position] == ">":
            return attributes, position + 1
        name_end = _skip(_ATTRIBUTE_NAME, text, position)
        name = text[position:name_end][:MAX_VALUE].lower()
        value, position = _read_value(text, name_end)
        attributes.setdefault(name, html.unescape(value[:MAX_VALUE]))
    return attributes, _after(text, ">", position)


def _read_value(text: str, position: int) -> tuple[str, int]:
    equals = _EQUALS.match(text, position)
    if equals is None:
        return "", position
    start = equals.end()
    quote = text[start : start + 1]
    if quote and quote in "\"'":
        end = text.find(quote, start + 1)
        return (text[start + 1 : end], end + 1) if end >= 0 else (text[start + 1 :], len(text))
    end = _skip(_BARE_VALUE, text, start)
    return text[start:end], end


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _after(text: str, token: str, position: int) -> int:
    found = text.find(token, position)
    return found + len(token) if found >= 0 else len(text)
