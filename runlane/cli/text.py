"""Text of foreign origin, made safe for a terminal."""

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Final

_NAMES: Final = {"\x1b": "ESC", "\r": "CR", "\n": "LF", "\t": "TAB", "\0": "NUL", "\x07": "BEL", "\x08": "BS"}
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that steer or vanish instead of being seen: controls, bidi marks, surrogates …"""

_DAY_S: Final = 86_400
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": _DAY_S}
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")


def visible(value: object) -> str:
    """Returns the text with every character that a terminal would obey shown as `⟦…⟧`. None becomes `-`."""
    if value is None:
        return "-"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(_show(character) for character in text)


def age(text: str, now: datetime) -> str:
    """Says a moment as a person does: `12 s ago`, `3 h ago`, and the day when it is long past or to come."""
    moment = datetime.fromisoformat(text)
    seconds = int((now - moment).total_seconds())
    if not 0 <= seconds < _DAY_S:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M")
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def moment(text: str | None) -> str | None:
    """Reads how long ago (`30s`, `15m`, `24h`, `7d`) as a moment; anything else is left to the API."""
    ago = _AGO.fullmatch(text) if text is not None else None
    if ago is None:
        return text
    return (datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS_S[ago[2]])).isoformat()


def _show(character: str) -> str:
    if character in _NAMES:
        return f"⟦{_NAMES[character]}⟧"
    if unicodedata.category(character) in _HIDDEN:
        return f"⟦U+{ord(character):04X}⟧"
    return character
