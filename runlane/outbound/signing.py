"""Signatures of webhooks. Source: Standard Webhooks, Signature scheme (symmetric, `v1`)."""

import base64
import binascii
import hmac
import os
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

KEY_PREFIX: Final = "whsec_"
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
"""Bytes of a key, decoded."""

_NEW_KEY_BYTES: Final = 32


class MalformedKey(ValueError):
    """The text is no signing key. Its own text does not show it."""


def new_key() -> str:
    """A random signing key."""
    return KEY_PREFIX + base64.b64encode(os.urandom(_NEW_KEY_BYTES)).decode()


def key_bytes(key: str) -> bytes:
    """The bytes of a signing key.

    Raises:
        MalformedKey: it is none.
    """
    encoded = key.removeprefix(KEY_PREFIX)
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedKey("a signing key is whsec_ and base64") from None  # the cause may show it
    if encoded == key or not MIN_KEY_BYTES <= len(decoded) <= MAX_KEY_BYTES:
        raise MalformedKey(f"a signing key is whsec_ and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes in base64")
    return decoded


def signed_headers(keys: Sequence[str], event_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The three headers that tell a receiver who sent exactly this body, one signature for each key.

    Raises:
        MalformedKey: one is none.
    """
    moment = str(int(at.timestamp()))
    content = b".".join((event_id.encode(), moment.encode(), body))
    signatures = (base64.b64encode(hmac.digest(key_bytes(key), content, sha256)).decode() for key in keys)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
