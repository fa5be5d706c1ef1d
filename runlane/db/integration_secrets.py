"""Secrets of endpoints: what they ask for, and the keys that deliveries are signed with.

As with other secrets, the API's role cannot read them; only who delivers can, as the system role. A signing
key that was replaced signs along for a day, so that a receiver may learn the new one at its leisure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection, Record
from runlane.keyring import Keyring, Sealed

SIGNING: Final = "signing"
REPLACED: Final = "signing.replaced"
"""Names of the keys to sign with; no transport has secrets of these names."""

SIGNS_ALONG: Final = timedelta(hours=24)
"""How long a key that was replaced is still used. Source: Standard Webhooks, Secret rotation."""

ROTATED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Place:
    """Whose secrets."""

    workspace_id: UUID
    integration_id: UUID

    def __str__(self) -> str:
        return f"{self.workspace_id}/integration/{self.integration_id}"


@dataclass(frozen=True, slots=True)
class Opened:
    """Secrets of an endpoint. `signing`: the newest key first."""

    secrets: Mapping[str, str] = field(repr=False)
    signing: tuple[str, ...] = field(repr=False)


_DROP: Final = "DELETE FROM integration_secrets WHERE integration_id = $1 AND name <> ALL($2::text[])"

_PUT: Final = """
INSERT INTO integration_secrets (workspace_id, integration_id, name, key_id, nonce, ciphertext)
SELECT $1, $2, s.name, s.key_id, s.nonce, s.ciphertext
FROM unnest($3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS s (name, key_id, nonce, ciphertext)
"""

_HAS: Final = """
SELECT EXISTS (SELECT FROM integration_secrets WHERE integration_id = $1 AND name <> ALL($2::text[]))
"""

_REPLACE: Final = """
UPDATE integration_secrets SET name = $2, expires_at = clock_timestamp() + $3::interval
WHERE integration_id = $1 AND name = $4
"""

_READ: Final = """
SELECT name, key_id, nonce, ciphertext FROM integration_secrets
WHERE integration_id = $1 AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""

_OLD: Final = """
SELECT workspace_id, integration_id, name, key_id, nonce, ciphertext FROM integration_secrets
WHERE key_id <> $1 ORDER BY integration_id, name LIMIT $2 FOR UPDATE
"""

_RESEAL: Final = """
UPDATE integration_secrets s SET key_id = u.key_id, nonce = u.nonce, ciphertext = u.ciphertext
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::bytea[])
  AS u (integration_id, name, key_id, nonce, ciphertext)
WHERE s.integration_id = u.integration_id AND s.name = u.name
"""


async def put_secrets(conn: Connection, place: Place, secrets: Mapping[str, str], keyring: Keyring) -> None:
    """Stores what an endpoint asks for, in place of what was there; its signing keys stay.

    Raises:
        Unavailable: `secret.no_key`, and there is something to store.
    """
    await conn.execute(_DROP, place.integration_id, [SIGNING, REPLACED])
    if secrets:
        await _put(conn, place, secrets, keyring)


async def put_signing_key(conn: Connection, place: Place, key: str, keyring: Keyring) -> None:
    """Stores a key to sign with; the one that it replaces signs along for a day.

    Raises:
        Unavailable: `secret.no_key`.
    """
    await conn.execute(
        "DELETE FROM integration_secrets WHERE integration_id = $1 AND name = $2",
        place.integration_id,
        REPLACED,
    )
    await conn.execute(_REPLACE, place.integration_id, REPLACED, SIGNS_ALONG, SIGNING)
    await _put(conn, place, {SIGNING: key}, keyring)


async def open_secrets(conn: Connection, place: Place, keyring: Keyring) -> Opened:
    """The secrets of an endpoint, to deliver and for nothing else. As the system role.

    Raises:
        Unavailable: `secret.no_key`.
        Defect: `secret.broken`.
    """
    rows = await conn.fetch(_READ, place.integration_id)
    found = {row["name"]: keyring.open(_sealed(row), str(place)) for row in rows}
    signing = [found.pop(name) for name in (SIGNING, REPLACED) if name in found]
    return Opened(found, tuple(signing))


async def has_any(conn: Connection, place: Place) -> bool:
    """Whether an endpoint has secrets of its own, besides the keys that it is signed for with."""
    found: bool = await conn.fetchval(_HAS, place.integration_id, [SIGNING, REPLACED])
    return found


async def forget(conn: Connection, place: Place) -> None:
    """Removes every secret of an endpoint that is not there any more."""
    await conn.execute("DELETE FROM integration_secrets WHERE integration_id = $1", place.integration_id)


async def rotate(conn: Connection, keyring: Keyring) -> int:
    """Encrypts what has an older key with the newest one, in all workspaces; answers how many. Repeatable.

    Raises:
        Unavailable: `secret.no_key`, also if a key is missing that one was encrypted with.
        Defect: `secret.broken`.
    """
    total = 0
    while rows := await conn.fetch(_OLD, keyring.newest, ROTATED_AT_ONCE):
        places = [str(Place(row["workspace_id"], row["integration_id"])) for row in rows]
        renewed = [
            keyring.seal(keyring.open(_sealed(row), place), place)
            for row, place in zip(rows, places, strict=True)
        ]
        of, called = [row["integration_id"] for row in rows], [row["name"] for row in rows]
        await conn.execute(_RESEAL, of, called, *_columns(renewed))
        total += len(rows)
    return total


async def _put(conn: Connection, place: Place, secrets: Mapping[str, str], keyring: Keyring) -> None:
    sealed = [keyring.seal(value, str(place)) for value in secrets.values()]
    await conn.execute(_PUT, place.workspace_id, place.integration_id, list(secrets), *_columns(sealed))


def _columns(sealed: Sequence[Sealed]) -> tuple[list[str], list[bytes], list[bytes]]:
    return [s.key_id for s in sealed], [s.nonce for s in sealed], [s.ciphertext for s in sealed]


def _sealed(row: Record) -> Sealed:
    return Sealed(row["key_id"], row["nonce"], row["ciphertext"])
