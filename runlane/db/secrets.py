"""Secrets of a workspace: written and replaced by people, read by nobody but the worker that runs the job.

A row holds what the keyring made of the value. The API's role cannot read that column: only the system role
can, and it does so in the transaction of a claim.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.acts import Act, Action
from runlane.db.pool import Connection, Record
from runlane.db.rule_deeds import RuleDeed, tell
from runlane.definitions import Definition
from runlane.errors import Conflict, Invalid, NotFound
from runlane.keyring import Keyring, Sealed
from runlane.secret_refs import names_in

MAX_SECRETS: Final = 200
"""Of a workspace."""

ROTATED_AT_ONCE: Final = 500
"""Secrets of a rotation that are in memory."""


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A value under a name."""

    workspace_id: UUID
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Revealed:
    """Values of secrets by name, and the names that are not there."""

    values: Mapping[str, str] = field(repr=False)
    missing: Collection[str]


_SHOWN: Final = "id, name, key_id, created_at, rotated_at"

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('secrets/' || $1::uuid::text, 0))"
_COUNT: Final = "SELECT count(*) FROM secrets WHERE workspace_id = $1 AND name <> $2"

_SET: Final = f"""
INSERT INTO secrets (workspace_id, name, key_id, nonce, ciphertext) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id, name) DO UPDATE
SET key_id = $3, nonce = $4, ciphertext = $5, rotated_at = clock_timestamp()
RETURNING {_SHOWN}
"""

_REMOVE: Final = f"DELETE FROM secrets WHERE workspace_id = $1 AND name = $2 RETURNING {_SHOWN}"
_LIST: Final = f"SELECT {_SHOWN} FROM secrets WHERE workspace_id = $1 ORDER BY name"
_NAMES: Final = "SELECT name FROM secrets WHERE workspace_id = $1 AND name = ANY($2::text[])"

_SEALED: Final = """
SELECT name, key_id, nonce, ciphertext FROM secrets WHERE workspace_id = $1 AND name = ANY($2::text[])
"""

_OLD: Final = """
SELECT id, workspace_id, name, key_id, nonce, ciphertext FROM secrets
WHERE key_id <> $1 AND id > $2 ORDER BY id LIMIT $3 FOR UPDATE
"""

_RESEAL: Final = """
UPDATE secrets SET key_id = u.key_id, nonce = u.nonce, ciphertext = u.ciphertext
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[]) AS u (id, key_id, nonce, ciphertext)
WHERE secrets.id = u.id
"""


async def set_secret(conn: Connection, wanted: NewSecret, keyring: Keyring, act: Act) -> Mapping[str, object]:
    """Stores a value under a name, in place of the one that was there; answers everything but the value.

    Raises:
        Conflict: `secret.too_many`.
        Unavailable: `secret.no_key`.
    """
    await conn.execute(_LOCK, wanted.workspace_id)
    if await conn.fetchval(_COUNT, wanted.workspace_id, wanted.name) >= MAX_SECRETS:
        raise Conflict(f"a workspace has at most {MAX_SECRETS} secrets", code="secret.too_many")
    sealed = keyring.seal(wanted.value, _place(wanted.workspace_id, wanted.name))
    (row,) = await conn.fetch(
        _SET, wanted.workspace_id, wanted.name, sealed.key_id, sealed.nonce, sealed.ciphertext
    )
    await _say(conn, wanted.workspace_id, row, act, Action.SECRET)
    return dict(row)


async def remove_secret(conn: Connection, workspace_id: UUID, name: str, act: Act) -> Mapping[str, object]:
    """Removes a secret: jobs that refer to it fail when they are claimed.

    Raises:
        NotFound: `secret.not_found`.
    """
    row = await conn.fetchrow(_REMOVE, workspace_id, name)
    if row is None:
        raise NotFound("no such secret", code="secret.not_found")
    await _say(conn, workspace_id, row, act, Action.SECRET_REMOVE)
    return dict(row)


async def list_secrets(conn: Connection, workspace_id: UUID) -> list[dict[str, object]]:
    """Names of a workspace's secrets, and when each was set; never a value."""
    return [dict(row) for row in await conn.fetch(_LIST, workspace_id)]


async def require_secrets(conn: Connection, workspace_id: UUID, definition: Definition) -> None:
    """Passes if all secrets are there that the options of a definition refer to.

    Raises:
        Invalid: `secret.unknown`, with every step that refers to one that is not.
    """
    wanted = {step.step_id: names_in(step.config) for step in definition.steps}
    if not (every := frozenset().union(*wanted.values())):
        return
    known = {row["name"] for row in await conn.fetch(_NAMES, workspace_id, sorted(every))}
    faults = {
        f"jobs.{step_id}.config": f"no such secret: {', '.join(sorted(found - known))}"[:300]
        for step_id, found in wanted.items()
        if found - known
    }
    if faults:
        raise Invalid("the options refer to unknown secrets", code="secret.unknown", fields=faults)


async def reveal(conn: Connection, keyring: Keyring, workspace_id: UUID, wanted: Collection[str]) -> Revealed:
    """Values of secrets, for the answer to a claim and nothing else. As the system role.

    Raises:
        Unavailable: `secret.no_key`.
        Defect: `secret.broken`.
    """
    rows = await conn.fetch(_SEALED, workspace_id, sorted(wanted))
    values = {row["name"]: keyring.open(_sealed(row), _place(workspace_id, row["name"])) for row in rows}
    return Revealed(values, sorted(frozenset(wanted) - values.keys()))


async def rotate(conn: Connection, keyring: Keyring) -> int:
    """Encrypts every secret that has an older key with the newest one, in all workspaces; answers how many.

    Harmless when repeated: what has the newest key is passed over. As the system role.

    Raises:
        Unavailable: `secret.no_key`, also if a key is missing that one was encrypted with.
        Defect: `secret.broken`.
    """
    total, after = 0, UUID(int=0)
    while rows := await conn.fetch(_OLD, keyring.newest, after, ROTATED_AT_ONCE):
        await _seal_anew(conn, keyring, rows)
        total, after = total + len(rows), rows[-1]["id"]
    return total


async def _seal_anew(conn: Connection, keyring: Keyring, rows: Sequence[Record]) -> None:
    places = [_place(row["workspace_id"], row["name"]) for row in rows]
    renewed = [
        keyring.seal(keyring.open(_sealed(row), place), place)
        for row, place in zip(rows, places, strict=True)
    ]
    await conn.execute(
        _RESEAL,
        [row["id"] for row in rows],
        [sealed.key_id for sealed in renewed],
        [sealed.nonce for sealed in renewed],
        [sealed.ciphertext for sealed in renewed],
    )


def _place(workspace_id: UUID, name: str) -> str:
    return f"{workspace_id}/{name}"


def _sealed(row: Record) -> Sealed:
    return Sealed(row["key_id"], row["nonce"], row["ciphertext"])


async def _say(conn: Connection, workspace_id: UUID, row: Record, act: Act, action: Action) -> None:
    value = f"named {row['name']}"  # it says what the secret is for; what it holds is nowhere but in its row
    await tell(conn, act, RuleDeed(action, workspace_id, names.secret_subject(row["id"]), value))
