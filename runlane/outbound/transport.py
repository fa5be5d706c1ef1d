"""What a transport is: it says one thing to one endpoint, once, and tells what came back.

Whether an answer is a success, and when to try again, is judged elsewhere (`runlane/integrations.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from httpx2 import AsyncClient

from runlane.errors import Refused, Unavailable
from runlane.integrations import Kind

CONNECT_S: Final = 5.0
"""Seconds for a connection."""

TOTAL_S: Final = 15.0
"""Seconds for one attempt, everything included."""

MAX_ANSWER_BYTES: Final = 64 * 1024
"""Bytes of an answer that are read."""

MAX_EXCERPT: Final = 2_048
"""Characters of an answer that are kept, without credentials."""


class Unreachable(Unavailable):
    """The endpoint gave no answer; a later attempt may get one."""

    default_code = "integration.unreachable"


class Rejected(Refused):
    """The endpoint, or the guard, will not take this however often it is sent."""

    default_code = "integration.rejected"


class Gone(Refused):
    """The endpoint says that it is not there any more: nothing is to be sent to it again."""

    default_code = "integration.gone"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send. `signing`: keys to sign with, the newest first; two while one replaces the other."""

    kind: Kind
    config: Mapping[str, object]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    signing: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """What to send. `body` has the ten outbound fields and is the same at each attempt, as is `event_id`.

    `sequence`: place on the bus. `digest_count`: how many events of its type it stands for, with itself.
    """

    event_id: UUID
    type: str
    body: Mapping[str, object]
    sequence: int = 0
    digest_count: int = 1


@dataclass(frozen=True, slots=True)
class Sent:
    """What came back. `status`: of HTTP, or the one that says the same where an answer is 200 with an error.

    `retry_after_s`: how long the endpoint wants to be left alone. `excerpt`: the start of its answer, without
    credentials. `ticket_ref`: address or key of the ticket that now stands for it.
    """

    status: int
    retry_after_s: float | None = None
    excerpt: str = ""
    ticket_ref: str | None = None


class Transport(Protocol):
    """Says one thing to one kind of endpoint."""

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """Passes if an endpoint can be made of these. `secrets` None: those that are stored stay.

        Raises:
            Invalid: `integration.config`, with every fault by its path.
        """

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """Makes one attempt, `at` being its time. A repetition is known by `message.event_id`.

        Raises:
            Unreachable: there was no answer.
            Rejected: it cannot be sent, or is answered so; trying again does not help.
            Gone: the endpoint is not there any more.
        """
