"""Sends what is due at one endpoint outside of the platform, and writes down how it went.

The network is used between two short transactions, never inside of one. What is sent comes from rows, so a
worker that dies leaves nothing but attempts without an answer, which are made again a minute later.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog
from httpx2 import AsyncClient
from temporalio import activity

from activities.failures import translated
from activities.heartbeats import beating
from runlane.db.calling import call
from runlane.db.pool import Pool
from runlane.db.pumping import Attempted, Load, Taken, settle, take
from runlane.errors import RunlaneError
from runlane.events import scrub_text
from runlane.integrations import Answer, Kind, judge
from runlane.keyring import Keyring
from runlane.outbound.transport import (
    MAX_EXCERPT,
    TOTAL_S,
    Endpoint,
    Gone,
    Message,
    Rejected,
    Transport,
)

log = structlog.get_logger(__name__)

TURN_S: Final = 20.0
"""Nothing more is taken in a turn that has lasted this long."""

MAX_ERROR: Final = 500


@dataclass
class DeliveryTurn:
    """To which endpoint."""

    integration_id: str


@dataclass
class DeliveryAnswer:
    """How many attempts were made."""

    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Outbound:
    """What sending needs, shared by all endpoints of a process."""

    client: AsyncClient
    transports: Mapping[Kind, Transport]
    keyring: Keyring
    chance: Callable[[], float] = random.random


class DeliveryActivities:
    """Activities of endpoints; they have a queue of their own."""

    def __init__(self, pool: Pool, outbound: Outbound) -> None:
        self._pool = pool
        self._outbound = outbound

    @activity.defn
    async def deliver(self, turn: DeliveryTurn) -> DeliveryAnswer:
        """Delivers what is due until nothing is, or the turn has lasted long, and calls for the rest.

        Idempotent as far as a network allows: a second run takes what the first one has not. What the first
        one has taken and not settled is sent again under the same id.
        """
        integration_id, answer = UUID(turn.integration_id), DeliveryAnswer()
        clock = asyncio.get_running_loop().time
        async with beating(), translated():
            ends_at = clock() + TURN_S
            while clock() < ends_at and (load := await self._take(integration_id)):
                await self._send(load)
                answer.attempts += len(load.deliveries)
            async with self._pool.acquire() as conn, conn.transaction():
                await call(conn, [integration_id])
        return answer

    async def _take(self, integration_id: UUID) -> Load | None:
        async with self._pool.acquire() as conn, conn.transaction():
            return await take(conn, integration_id, self._outbound.keyring)

    async def _send(self, load: Load) -> None:
        attempts = await asyncio.gather(*(self._attempt(load, taken) for taken in load.deliveries))
        async with self._pool.acquire() as conn, conn.transaction():
            await settle(conn, load.place, attempts)

    async def _attempt(self, load: Load, taken: Taken) -> Attempted:
        """One attempt; whatever goes wrong is its outcome, and it is made again when that may help."""
        clock = asyncio.get_running_loop().time
        began = clock()

        def done(answer: Answer, error: str | None = None) -> Attempted:
            duration_ms = round((clock() - began) * 1_000)
            said = scrub_text(error)[:MAX_ERROR] if error else None
            return Attempted(taken, answer, duration_ms, error=said, chance=self._outbound.chance())

        endpoint = Endpoint(load.kind, load.config, load.opened.secrets, load.opened.signing)
        message = Message(taken.event_id, taken.type, taken.body, taken.sequence, taken.events)
        transport = self._outbound.transports[load.kind]
        try:
            async with asyncio.timeout(TOTAL_S):
                sent = await transport.send(self._outbound.client, endpoint, message, load.at)
        except TimeoutError:
            return done(Answer.TROUBLED, f"no answer within {TOTAL_S:g} s")
        except Gone as error:
            return done(Answer.GONE, error.detail)
        except Rejected as error:
            return done(Answer.REFUSED, error.detail)
        except RunlaneError as error:
            return done(Answer.TROUBLED, error.detail)
        except Exception as error:
            # the outermost frame of an attempt: a bug of a transport must not keep an endpoint from the rest
            log.exception("delivery_broke", delivery=str(taken.delivery_id), kind=load.kind)
            return done(Answer.TROUBLED, type(error).__name__)
        answer = judge(sent.status)
        made = done(answer, None if answer is Answer.ACCEPTED else f"HTTP {sent.status}")
        return replace(
            made,
            status=sent.status,
            excerpt=scrub_text(sent.excerpt)[:MAX_EXCERPT] or None,
            ticket=sent.ticket_ref,
            retry_after_s=sent.retry_after_s,
        )
