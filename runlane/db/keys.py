"""API keys: `rl_<prefix>_<secret>`, found by prefix, checked by HMAC, never stored.

A key is 256 bits of randomness, so a fast keyed hash is enough: there is nothing to guess. The pepper lives
outside the database, so that a stolen dump cannot be used to make keys.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.errors import Forbidden, Invalid, NotFound, Unauthenticated
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import ApiKeyCreated, ApiKeyRevoked, ApiKeyRotated

_PREFIX_LENGTH: Final = 12
_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_FORM: Final = re.compile(rf"rl_([{_ALPHABET}]{{{_PREFIX_LENGTH}}})_([A-Za-z0-9_-]{{43}})\Z")
MIN_PEPPER: Final = 32


class Scope(StrEnum):
    """What a key may do in its workspace; PLATFORM_ADMIN is for the whole installation."""

    TARGETS_READ = "targets:read"
    TARGETS_WRITE = "targets:write"
    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    EVENTS_READ = "events:read"
    EVENTS_WRITE = "events:write"
    INVENTORY_READ = "inventory:read"
    NOTIFICATIONS_READ = "notifications:read"
    NOTIFICATIONS_WRITE = "notifications:write"
    WORKERS_READ = "workers:read"
    SECRETS_WRITE = "secrets:write"
    WORKERS_WRITE = "workers:write"
    INTEGRATIONS_READ = "integrations:read"
    INTEGRATIONS_WRITE = "integrations:write"
    WORKER_JOIN = "worker:join"
    PLATFORM_ADMIN = "platform:admin"


ALL_SCOPES: Final = "*"
"""Stands for every scope of a workspace. It carries neither `worker:join` nor `platform:admin`."""

_EXPLICIT: Final = frozenset({Scope.WORKER_JOIN, Scope.PLATFORM_ADMIN})


_EXPIRE = """
UPDATE api_keys
SET expires_at = least(expires_at, clock_timestamp() + make_interval(secs => $2))
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
RETURNING workspace_id, network_id, name, scopes, expires_at, old.expires_at - created_at AS life,
  clock_timestamp() AS now
"""

_IS_VALID = """
SELECT EXISTS (
  SELECT FROM api_keys k LEFT JOIN workspaces w ON w.id = k.workspace_id
  WHERE k.id = $1 AND k.revoked_at IS NULL AND w.deleted_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()))
"""

_LIST = """
SELECT k.id, coalesce(w.name, '(platform)') AS workspace, k.name, k.scopes, k.created_at, k.expires_at,
  k.last_used_at, n.name AS network
FROM api_keys k
LEFT JOIN workspaces w ON w.id = k.workspace_id
LEFT JOIN internal_networks n ON n.id = k.network_id
WHERE k.revoked_at IS NULL AND w.deleted_at IS NULL
  AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
ORDER BY k.created_at, k.id
"""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to make. `workspace_id` None makes a platform key.

    `network_id`: workers that are enrolled with it are bound to this network; it is good for nothing else.
    """

    name: str
    workspace_id: UUID | None
    scopes: Collection[str]
    expires_at: datetime | None = None
    network_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A key that was made; `plaintext` exists here and nowhere else."""

    key_id: UUID
    plaintext: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request: the owner of a valid key."""

    key_id: UUID
    workspace_id: UUID | None
    name: str
    scopes: frozenset[str]
    network_id: UUID | None = None
    """Workers that it enrols are bound to this network."""

    def has(self, scope: Scope) -> bool:
        """Whether the key carries the scope."""
        return scope in self.scopes or (ALL_SCOPES in self.scopes and scope not in _EXPLICIT)

    def require(self, scope: Scope) -> None:
        """Passes if the key carries the scope.

        Raises:
            Forbidden: `key.scope`.
        """
        if not self.has(scope):
            raise Forbidden(f"the key does not carry the scope {scope}", code="key.scope")


def digest(secret: str, pepper: bytes) -> bytes:
    """HMAC-SHA256 of a key or token with the installation's pepper: what is stored of it (32 bytes)."""
    return hmac.digest(pepper, secret.encode(errors="replace"), hashlib.sha256)


def check_pepper(pepper: str) -> bytes:
    """Returns the pepper as bytes.

    Raises:
        Invalid: it is shorter than 32 characters; every key of the installation would be weaker for it.
    """
    if len(pepper) < MIN_PEPPER:
        raise Invalid(
            f"RUNLANE_KEY_PEPPER needs at least {MIN_PEPPER} characters", code="settings.key_pepper"
        )
    return pepper.encode()


async def create_key(conn: Connection, key: NewKey, pepper: bytes) -> CreatedKey:
    """Makes a key, stores its digest and says so on the bus; call it inside a transaction.

    A repeated call makes another key. A platform key is not on the bus: events belong to a workspace.

    Raises:
        Invalid: an unknown scope (`key.unknown_scope`); one for a network that does more than enrol workers
            of a workspace (`key.network`).
    """
    unknown = sorted(set(key.scopes) - set(Scope) - {ALL_SCOPES})
    if unknown:
        raise Invalid(
            f"unknown scope {unknown[0]!r}", code="key.unknown_scope", fields={"scopes": unknown[0]}
        )
    if key.network_id is not None and (key.workspace_id is None or set(key.scopes) != {Scope.WORKER_JOIN}):
        detail = f"a key for a network belongs to its workspace and carries {Scope.WORKER_JOIN} alone"
        raise Invalid(detail, code="key.network", fields={"network": detail})
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(_PREFIX_LENGTH))
    plaintext = f"rl_{prefix}_{secrets.token_urlsafe(32)}"
    key_id: UUID = await conn.fetchval(
        """
        INSERT INTO api_keys (workspace_id, name, prefix, digest, scopes, expires_at, network_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id
        """,
        key.workspace_id,
        key.name,
        prefix,
        digest(plaintext, pepper),
        sorted(set(key.scopes)),
        key.expires_at,
        key.network_id,
    )
    if key.workspace_id is not None:
        payload = ApiKeyCreated(key_id=key_id, name=key.name, scopes=tuple(sorted(set(key.scopes))))
        created = envelope(
            EVENT_CATALOG.api_key.created,
            payload,
            workspace_id=key.workspace_id,
            subject=names.api_key_subject(key_id),
        )
        await outbox.insert(conn, [created])
    return CreatedKey(key_id, plaintext)


async def authenticate(conn: Connection, presented: str, pepper: bytes) -> Principal:
    """Finds the owner of a key. Notes its use, at most once a minute.

    Raises:
        Unauthenticated: `key.invalid`, whatever the reason: unknown, wrong, expired, revoked, workspace gone.
    """
    form = _FORM.match(presented)
    row = form and await conn.fetchrow(
        """
        SELECT k.id, k.workspace_id, k.network_id, k.name, k.scopes, k.digest,
               k.last_used_at IS NULL OR k.last_used_at < clock_timestamp() - interval '1 minute' AS is_stale
        FROM api_keys k LEFT JOIN workspaces w ON w.id = k.workspace_id
        WHERE k.prefix = $1 AND k.revoked_at IS NULL AND w.deleted_at IS NULL
          AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
        """,
        form[1],
    )
    # Compared even when nothing was found: the time of the answer must not tell which prefixes exist.
    stored: bytes = row["digest"] if row else bytes(32)
    if not hmac.compare_digest(digest(presented, pepper), stored) or not row:
        raise Unauthenticated("the key is not valid", code="key.invalid")
    if row["is_stale"]:
        await conn.execute("UPDATE api_keys SET last_used_at = clock_timestamp() WHERE id = $1", row["id"])
    return Principal(row["id"], row["workspace_id"], row["name"], frozenset(row["scopes"]), row["network_id"])


async def is_valid(conn: Connection, key_id: UUID) -> bool:
    """Whether a key that was presented once is still good: not revoked, not expired, its workspace there."""
    found: bool = await conn.fetchval(_IS_VALID, key_id)
    return found


async def rotate_key(conn: Connection, key_id: UUID, overlap_s: float, pepper: bytes) -> CreatedKey:
    """Makes a key that may do the same for as long, and lets the old one expire after `overlap_s`.

    A repeated call makes another key. Call it inside a transaction.

    Raises:
        NotFound: `key.not_found`, there is no such valid key.
    """
    row = await conn.fetchrow(_EXPIRE, key_id, overlap_s)
    if row is None:
        raise NotFound("no such key that is valid", code="key.not_found")
    expires_at = row["now"] + row["life"] if row["life"] is not None else None
    new = NewKey(row["name"], row["workspace_id"], row["scopes"], expires_at, row["network_id"])
    made = await create_key(conn, new, pepper)
    if row["workspace_id"] is not None:
        payload = ApiKeyRotated(
            key_id=key_id, name=row["name"], replaced_by=made.key_id, expires_at=row["expires_at"].isoformat()
        )
        rotated = envelope(
            EVENT_CATALOG.workspace.api_key.rotated,
            payload,
            workspace_id=row["workspace_id"],
            subject=names.api_key_subject(key_id),
            ordinal=str(made.key_id),
        )
        await outbox.insert(conn, [rotated])
    return made


async def list_keys(conn: Connection) -> list[dict[str, object]]:
    """The keys that are valid now, in the order in which they were made."""
    rows = await conn.fetch(_LIST)
    return [dict(row) for row in rows]


async def revoke_key(conn: Connection, key_id: UUID) -> bool:
    """Makes a key invalid from now on; False if it was not valid before. Call it inside a transaction."""
    row = await conn.fetchrow(
        """
        UPDATE api_keys SET revoked_at = clock_timestamp()
        WHERE id = $1 AND revoked_at IS NULL RETURNING workspace_id, name
        """,
        key_id,
    )
    if row is not None and row["workspace_id"] is not None:
        revoked = envelope(
            EVENT_CATALOG.api_key.revoked,
            ApiKeyRevoked(key_id=key_id, name=row["name"]),
            workspace_id=row["workspace_id"],
            subject=names.api_key_subject(key_id),
        )
        await outbox.insert(conn, [revoked])
    return row is not None
