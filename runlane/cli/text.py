"""Text of foreign origin, made safe for a terminal."""

import unicodedata
from typing import Final

_NAMES: Final = {"\x1b": "ESC", "\r": "CR", "\n": "LF", "\t": "TAB", "\0": "NUL", "\x07": "BEL", "\x08": "BS"}
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that steer or vanish instead of being seen: controls, bidi marks, surrogates …"""


def visible(value: object) -> str:
    """Returns the text with every character that a terminal would obey shown as `⟦…⟧`. None becomes `-`."""
    if value is None:
        return "-"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(_show(character) for character in text)


def _show(character: str) -> str:
    if character in _NAMES:
        return f"⟦{_NAMES[character]}⟧"
    if unicodedata.category(character) in _HIDDEN:
        return f"⟦U+{ord(character):04X}⟧"
    return character
