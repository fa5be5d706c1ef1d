"""Which names of fields are those of credentials, and which say that a value is a hash. Pure.

A name is read as words: `tokenizer` is no token, `certificate` is no cert. A word at its end that describes
(`apiKeyId`, `passwordChangedAt`) says that the value is about a credential and none itself.
Source: Event bridge, Redaction happens at the producer.
"""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HARD: Final = _words(
    "secret secrets password passwords passwd pwd passphrase passphrases authorization bearer cookie cookies"
)
"""Words that make a name that of a credential, wherever they stand."""

_HARD_PARTS: Final = ("password", "passwd", "passphrase", "authorization", "apikeysecret", "secretkey")
"""As `_HARD`, glued to something else: no other word contains one."""

_HARD_ENDS: Final = ("secret", "secrets", "cookie", "cookies")

_SOFT_PARTS: Final = (
    *("apikey", "privatekey", "accesskey", "sshkey", "signingkey", "encryptionkey"),
    *("clientcert", "servercert", "tlscert", "sslcert", "cacert", "rootcert"),
)
_SOFT_ENDS: Final = ("token", "tokens", "credential", "credentials")
_CERT: Final = _words("cert certs")
_KEYS: Final = _words("key keys")
_KINDS_OF_KEYS: Final = _words("api private access ssh signing encryption")

_DESCRIPTIVE: Final = _words(
    "id ids count counts name names type types expiry expires expired expiration at on enabled disabled "
    "issuer subject serial fingerprint thumbprint algorithm alg length size policy version status created "
    "updated rotated changed used limit limits max min url urls uri endpoint endpoints valid invalid present "
    "required days ttl age format"
)
"""A name that ends in one of these is about a credential."""

_IDENTIFYING: Final = _words("id ids hash name names url urls uri")
"""These do not excuse a hard word: `secret_id` is a credential, and so is `password_hash`."""

_MEASURING: Final = _words("max min num total prompt completion")
"""`maxTokens` counts them."""

_HASHES: Final = _words(
    "sha md hash hashes digest digests fingerprint fingerprints thumbprint checksum checksums favicon etag "
    "commit rev revision jarm ja serial ski aki spki integrity cursor"
)
"""Words of a name under which a hexadecimal text is a hash. Digits at the end of a word do not count."""

_STEM: Final = re.compile("secret|token|passw|passphrase|pwd|credential|cert|authorization|bearer|cookie|key")
"""One of these is in every name of a credential; nearly no other name has one."""

_WORD: Final = re.compile("[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")
_FLAT_WORD: Final = re.compile("[a-z]+")
_DIGITS: Final = "0123456789"

_LOOKALIKES: Final = str.maketrans(
    dict(zip("аеорсухіѕԁһктвпгԛԝјӏ", "aeopcyxisdhktbnrqwjl", strict=True))
    | dict(zip("АВСЕНІКМОРЅТУХЈ", "ABCEHIKMOPSTYXJ", strict=True))
    | dict(zip("αοερκτιυνωςʋɑɡıᴄᴋ", "aoepktiuvwsvagick", strict=True))
    | dict(zip("ΑΒΕΗΙΚΜΝΟΡΤΥΧΖ", "ABEHIKMNOPTYXZ", strict=True))
)  # fmt: skip
"""Letters of other alphabets that look like those of our words."""


_MAX_NAME: Final = 512
"""Characters of a name that are read: to decompose letters with many marks takes quadratic time."""


@dataclass(frozen=True, slots=True)
class Name:
    """What a name says of its value."""

    is_credential: bool
    is_hash: bool


def judge_name(name: str) -> Name:
    """What the name of a field says of its value."""
    folded = _fold(name[:_MAX_NAME])
    words = [word.lower().rstrip(_DIGITS) for word in _WORD.findall(folded)]
    is_hash = not _HASHES.isdisjoint(words)
    lowered = folded.lower()
    if not _STEM.search(lowered):
        return Name(is_credential=False, is_hash=is_hash)
    return Name(_is_credential(words, _FLAT_WORD.findall(lowered)), is_hash)


def _fold(name: str) -> str:
    """The name in Latin letters, without marks and without characters that nobody sees."""
    if name.isascii():
        return name
    decomposed = unicodedata.normalize("NFKD", name).translate(_LOOKALIKES)
    return "".join(letter for letter in decomposed if unicodedata.category(letter) not in ("Mn", "Cf"))


def _is_credential(words: list[str], flat: list[str]) -> bool:
    """`words`: by their capitals, `flat`: without regard to them, since `PassWord` and `apiKEYs` exist."""
    last = words[-1] if words else ""
    describes = last in _DESCRIPTIVE
    either = {*words, *flat}
    if _is_hard(either):
        return not describes or last in _IDENTIFYING
    is_soft = any(word.endswith(_SOFT_ENDS) for word in either)
    is_key = _has_pair(words) or _has_pair(flat) or _contains(either, _SOFT_PARTS)
    is_cert = not _CERT.isdisjoint(either)
    if is_cert and not (is_soft or is_key):
        return not describes and last not in _HASHES
    if is_soft and not is_key and words and words[0] in _MEASURING:
        return False
    return (is_soft or is_key) and not describes


def _is_hard(words: set[str]) -> bool:
    return (
        not _HARD.isdisjoint(words)
        or any(word.endswith(_HARD_ENDS) for word in words)
        or _contains(words, _HARD_PARTS)
    )


def _contains(words: set[str], parts: tuple[str, ...]) -> bool:
    return any(part in word for word in words for part in parts)


def _has_pair(words: list[str]) -> bool:
    return any(second in _KEYS and first in _KINDS_OF_KEYS for first, second in pairwise(words))
