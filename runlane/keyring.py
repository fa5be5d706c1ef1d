"""The keys that secrets are encrypted with: the first one for what is new, all of them for what is there.

A key is a text that an operator keeps; what encrypts is derived from it, and so is its id. AES-GCM binds each
secret to its workspace and name: a row that was copied to another place cannot be read there.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from runlane.errors import Defect, Invalid, Unavailable

MIN_KEY: Final = 32
"""Characters of a key."""

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret as it is stored."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by their id, the newest first; without any, nothing can be sealed or opened."""

    _keys: dict[str, AESGCM] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Makes a ring of keys, the newest first.

        Raises:
            Invalid: one is too short (`settings.secret_keys`).
        """
        if any(len(text) < MIN_KEY for text in texts):
            detail = f"each of RUNLANE_SECRET_KEYS needs at least {MIN_KEY} characters"
            raise Invalid(detail, code="settings.secret_keys")
        return cls({_derive(text, _ID_BYTES, b"id").hex(): AESGCM(_key(text)) for text in texts})

    @property
    def newest(self) -> str:
        """Id of the key that encrypts what is new.

        Raises:
            Unavailable: there is none (`secret.no_key`).
        """
        if not self._keys:
            raise Unavailable("RUNLANE_SECRET_KEYS is not set", code="secret.no_key")
        return next(iter(self._keys))

    def seal(self, value: str, place: str) -> Sealed:
        """Encrypts a value with the newest key, for this place alone.

        Raises:
            Unavailable: there is no key (`secret.no_key`).
        """
        key_id, nonce = self.newest, os.urandom(_NONCE_BYTES)
        return Sealed(key_id, nonce, self._keys[key_id].encrypt(nonce, value.encode(), place.encode()))

    def open(self, sealed: Sealed, place: str) -> str:
        """Decrypts what was sealed for this place.

        Raises:
            Unavailable: its key is not on the ring (`secret.no_key`).
            Defect: it was changed, or sealed for another place (`secret.broken`).
        """
        key = self._keys.get(sealed.key_id)
        if key is None:
            detail = f"the key {sealed.key_id} is not among RUNLANE_SECRET_KEYS"
            raise Unavailable(detail, code="secret.no_key")
        try:
            return key.decrypt(sealed.nonce, sealed.ciphertext, place.encode()).decode()
        except InvalidTag as error:
            raise Defect("a secret is not what was stored there", code="secret.broken") from error


def _key(text: str) -> bytes:
    return _derive(text, _KEY_BYTES, b"key")


def _derive(text: str, length: int, purpose: bytes) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=b"runlane secrets " + purpose).derive(text.encode())
