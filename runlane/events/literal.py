"""The document's rule to the letter, which strict mode applies besides the precise one. Pure.

Names are matched as parts, whatever their case, so `certificate` and `tokenizer` are credentials as well;
every text of 40 characters without a delimiter is a token, hashes included. Only ids of our own are spared.
Source: Event bridge, Redaction happens at the producer.
"""

import re
from typing import Final

from runlane.events.tokens import CREDENTIAL_PREFIXES, TOKEN, TOKEN_LENGTH, is_own_name, mask_words

CREDENTIAL_WORDS: Final = (
    "secret",
    "token",
    "password",
    "credential",
    r"api[-_. ]?key",
    r"private[-_. ]?key",
    r"access[-_. ]?key",
    "authorization",
    "bearer",
    "passphrase",
    "cert",
    r"ssh[-_. ]?key",
)
"""Twelve patterns; a key that contains one is dropped with its value."""

_CREDENTIAL_KEY: Final = re.compile("|".join(CREDENTIAL_WORDS), re.IGNORECASE)
_PEM_HEADER: Final = "-----BEGIN"


def is_named_like_a_credential(name: str) -> bool:
    """Whether the document drops a field of this name."""
    return _CREDENTIAL_KEY.search(name) is not None


def is_credential(value: str) -> bool:
    """Whether the document takes the value for a credential."""
    # blanks around it must not hide a credential
    bare = value.strip()
    if bare.startswith(CREDENTIAL_PREFIXES) or _PEM_HEADER in bare:
        return True
    return len(bare) >= TOKEN_LENGTH and TOKEN.fullmatch(bare) is not None and not is_own_name(bare)


def mask_words_literally(text: str) -> str:
    """The text with each long word in it masked."""
    return mask_words(text, lambda _word, _is_hash: True)
