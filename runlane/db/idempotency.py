"""Idempotency keys: the same request sent again gets the first answer and does nothing.

The row is written in the transaction of what it protects, so there is no moment with one and not the other.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

import orjson

from runlane import names
from runlane.db.pool import Connection
from runlane.errors import Conflict, Invalid


class InFlight(Conflict):
    """The same key is being worked on by another request; ask again in a moment."""

    default_code: ClassVar[str] = names.IN_FLIGHT_CODE


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an Idempotency-Key. Keys are apart by workspace and route."""

    workspace_id: UUID
    route: str
    key: str
    body_sha256: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered: HTTP status and body."""

    status: int
    response: dict[str, object]


def hash_body(body: object) -> bytes:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()


async def once(
    conn: Connection, request: IdempotentRequest | None, act: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Does what a request asks for once, and answers it alike for 24 hours; without a key, each time.

    Raises:
        InFlight, Invalid: as `begin`.
    """
    if request is None:
        return await act()
    if answer := await begin(conn, request):
        return answer
    answer = await act()
    await finish(conn, request, answer)
    return answer


async def begin(conn: Connection, request: IdempotentRequest) -> Answer | None:
    """Takes the key until the end of the transaction; returns the answer given in the last 24 hours.

    Raises:
        InFlight: another transaction holds the key.
        Invalid: the key was used with another body (`idempotency.body_mismatch`).
    """
    is_ours = await conn.fetchval(
        "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))",
        f"idempotency/{request.workspace_id}/{request.route}/{request.key}",
    )
    if not is_ours:
        raise InFlight("a request with this Idempotency-Key is in flight")
    row = await conn.fetchrow(
        """
        SELECT body_sha256, status, response FROM idempotency_keys
        WHERE workspace_id = $1 AND route = $2 AND key = $3
          AND created_at > clock_timestamp() - interval '24 hours'
        """,
        request.workspace_id,
        request.route,
        request.key,
    )
    if row is None:
        return None
    if row["body_sha256"] != request.body_sha256:
        raise Invalid(
            "this Idempotency-Key was used with another body",
            code="idempotency.body_mismatch",
            fields={"Idempotency-Key": "used with another body in the last 24 hours"},
        )
    return Answer(row["status"], row["response"])


async def finish(conn: Connection, request: IdempotentRequest, answer: Answer) -> None:
    """Stores the answer; it is there if and only if the transaction commits."""
    await conn.execute(
        """
        INSERT INTO idempotency_keys (workspace_id, route, key, body_sha256, status, response)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (workspace_id, route, key) DO UPDATE SET
          body_sha256 = excluded.body_sha256, status = excluded.status, response = excluded.response,
          created_at = clock_timestamp()
        """,
        request.workspace_id,
        request.route,
        request.key,
        request.body_sha256,
        answer.status,
        answer.response,
    )
