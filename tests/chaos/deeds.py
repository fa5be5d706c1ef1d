"""What people do through the API during a storm, at random, and what the audit trail must say of it.

Each request has a reason of its own, by which its event is found: an act that was accepted has one event, one
that was refused none, and one whose answer was lost at most one.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Final
from uuid import UUID, uuid4

import httpx2
import structlog

from runlane import names
from runlane.cli.answers import as_object, objects_in
from runlane.cli.client import Json
from tests.e2e.installation import Installation

log = structlog.get_logger(__name__)

RETRY_S: Final = 0.3

# one request may be two acts: who resumes a run lifts its pause as well
_AUDITED: Final = """
SELECT reason, max(events) AS events
FROM (SELECT data ->> 'reason' AS reason, coalesce(data ->> 'action', type) AS action, count(*)::int AS events
      FROM audit_events WHERE data ? 'action' OR data ? 'changes' GROUP BY 1, 2) AS acts
WHERE reason IS NOT NULL GROUP BY 1
"""


class Tells(Enum):
    """How an accepted answer tells whether this very request has changed anything."""

    ALWAYS = auto()
    CHANGED = auto()  # it has `changed` or `is_changed`
    REASON = auto()  # it has the reason of whoever did it first
    NOT = auto()  # it does not


@dataclass(frozen=True, slots=True)
class Request:
    """An act of a person."""

    path: str
    body: Mapping[str, object] = field(default_factory=dict)
    method: str = "POST"
    tells: Tells = Tells.ALWAYS
    is_keyed: bool = False
    """Asked again under the same key until there is an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """A request and what was answered; without a status the answer was lost."""

    request: Request
    reason: str
    status: int | None = None
    answer: Json = field(default_factory=dict)

    @property
    def is_accepted(self) -> bool:
        """Whether it was done, now or before."""
        return self.status is not None and self.status < HTTPStatus.BAD_REQUEST

    @property
    def is_answered(self) -> bool:
        """Whether it is known what became of it."""
        return self.status is not None and self.status < HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def events(self) -> Sequence[int]:
        """How many events in the trail would be right."""
        if not self.is_answered:
            return (0, 1)
        if not self.is_accepted:
            return (0,)
        match self.request.tells:
            case Tells.ALWAYS:
                return (1,)
            case Tells.CHANGED:
                return (int(bool(self.answer.get("changed", self.answer.get("is_changed")))),)
            case Tells.REASON:
                return (int(self.answer["reason"] == self.reason),)
            case Tells.NOT:
                return (0, 1)


class Operator:
    """Somebody with the workspace's key, and a memory of all that he was answered."""

    def __init__(self, installation: Installation, http: httpx2.AsyncClient) -> None:
        self.installation = installation
        self._http = http
        self.said: list[Said] = []
        self._asked = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, installation: Installation) -> AsyncIterator["Operator"]:
        """Connections are made anew whenever the API was killed."""
        profile = installation.platform.profile
        headers = {"Authorization": f"Bearer {profile.api_key}"}
        async with httpx2.AsyncClient(
            base_url=profile.api_url, headers=headers, trust_env=False, timeout=30.0
        ) as http:
            yield cls(installation, http)

    @property
    def accepted(self) -> Counter[str]:
        """Accepted acts by the last words of their paths."""
        return Counter(_word(said.request) for said in self.said if said.is_accepted)

    async def act(self, request: Request) -> Said:
        """Asks once, or under its key until there is an answer."""
        self._asked += 1
        reason = f"chaos {self._asked}"
        key = {"Idempotency-Key": uuid4().hex} if request.is_keyed else {}
        while True:
            said = await self._ask(request, reason, key)
            if said.is_answered or not request.is_keyed:
                break
            await asyncio.sleep(RETRY_S)
        self.said.append(said)
        return said

    async def insist(self, request: Request) -> Said:
        """Asks, each time anew, until it is done or refused."""
        while True:
            said = await self.act(request)
            if said.is_answered:
                return said
            await asyncio.sleep(RETRY_S)

    async def make(self, path: str, body: Json) -> Json:
        """Makes something that says no reason; before anything is struck."""
        response = await self._http.post(path, json=body)
        response.raise_for_status()
        return as_object(response.json())

    async def items(self, path: str) -> list[Json]:
        """The rows of a list, however long the API is away."""
        while True:
            try:
                response = await self._http.get(path)
            except httpx2.TransportError:
                response = None
            if response is not None and response.is_success:
                return objects_in(as_object(response.json()), "items")
            await asyncio.sleep(RETRY_S)

    async def faults(self) -> list[str]:
        """What the trail says otherwise than the answers did; to be asked once every event is in it."""
        rows = await self.installation.pool.fetch(_AUDITED)
        events = {row["reason"]: row["events"] for row in rows}
        return [
            f"{said.request.method} {said.request.path} was answered {said.status},"
            f" and has {events.get(said.reason, 0)} events"
            for said in self.said
            if events.get(said.reason, 0) not in said.events
            or said.status == HTTPStatus.UNPROCESSABLE_ENTITY  # nobody asks for nonsense here
        ]

    async def _ask(self, request: Request, reason: str, key: Mapping[str, str]) -> Said:
        body = {**request.body, "reason": reason}
        try:
            response = await self._http.request(request.method, request.path, json=body, headers=dict(key))
        except httpx2.TransportError:
            return Said(request, reason)
        found = as_object(response.json()) if response.content else {}
        if found.get("code") == names.IN_FLIGHT_CODE:
            return Said(request, reason)
        if not response.is_success:
            log.info("chaos_deed_refused", path=request.path, status=response.status_code, answer=found)
        return Said(request, reason, response.status_code, found)


def _word(request: Request) -> str:
    """What is done, without ids: `runs/pause`."""
    words = [word for word in request.path.removeprefix("/v1/").split("/") if not _is_id(word)]
    return "/".join(words)


def _is_id(word: str) -> bool:
    try:
        UUID(word)
    except ValueError:
        return False
    return True
