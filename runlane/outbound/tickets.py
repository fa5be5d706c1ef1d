"""Tickets: one for each finding, made once, reopened with a comment, closed when the finding is gone.

What a tracker is asked first is whether it has the ticket: it carries a mark made of the finding's id, so an
attempt whose answer was lost makes no second one. One flow for all trackers; an adapter each says how.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

import orjson
from httpx2 import AsyncClient
from pydantic import BaseModel, ValidationError

from runlane.integrations import TEST
from runlane.outbound.config import Form, FormT, check, stored
from runlane.outbound.exchange import Answer, Call, exchange, one_attempt
from runlane.outbound.reach import Reach
from runlane.outbound.transport import Endpoint, Message, Rejected, Sent, Unreachable
from runlane.outbound.wording import Notice, notice_of, plain

DETECTED: Final = "vulnerability.detected"
REOPENED: Final = "vulnerability.reopened"
RESOLVED: Final = "vulnerability.resolved"
"""What moves a ticket. Of other events of a finding a tracker is told nothing."""

MAX_SUMMARY: Final = 200
"""Characters of a ticket's title."""

MAX_TRACKER_ANSWER_BYTES: Final = 1024 * 1024
"""Bytes that are read of a tracker's answer: a list of comments is longer than what others say."""

MAX_MARKED: Final = 36
"""Characters of an id in a mark: labels of GitHub have 50."""

_DONE: Final = 200
_WHOLE_SECONDS: Final = len("2026-12-01T08:30:00")
_NO_MARK: Final = re.compile(r"[^A-Za-z0-9-]")
_BACKTICKS: Final = re.compile(r"`+")

SecretsT = TypeVar("SecretsT", bound=Form)
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a ticket is about. All texts are plain and of one line."""

    mark: str
    """Same for each event of the finding, unlike that of any other; letters, digits and hyphens."""
    event_mark: str
    """Same at each attempt of one event."""
    since: str
    """When it happened, in whole seconds: before anything that was said about it."""
    title: str
    notice: Notice

    def lines(self) -> list[str]:
        """The facts, and the mark of the event."""
        return [*(f"{name}: {value}" for name, value in self.notice.facts), self.event_mark]


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket that there is. `key`: what the tracker's calls take; `ref`: what people find it by."""

    key: str
    ref: str
    is_open: bool


class Tracker(Protocol):
    """How one tracker does it. Each raises `Answered` for an answer that ends the attempt."""

    async def find(self, finding: Finding) -> Ticket | None:
        """The ticket of the finding, open or closed."""

    async def open(self, finding: Finding) -> Ticket:
        """Makes the ticket."""

    async def has_comment(self, ticket: Ticket, finding: Finding) -> bool:
        """Whether this event was commented on already."""

    async def comment(self, ticket: Ticket, finding: Finding) -> None:
        """Says that the finding is there again."""

    async def reopen(self, ticket: Ticket) -> None:
        """Opens a closed ticket."""

    async def close(self, ticket: Ticket) -> None:
        """Closes an open ticket."""


class Answered(Exception):
    """The tracker gave an answer that ends the attempt; it is no fault of ours and judged like any other."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(f"answered {sent.status}")
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Desk:
    """Calls of one attempt. `sent_of` says what an answer means that is no success."""

    client: AsyncClient
    at: datetime
    headers: Mapping[str, str] = field(repr=False)
    hidden: tuple[str, ...] = field(repr=False)
    sent_of: Callable[[Answer, datetime], Sent] = lambda answer, at: answer.sent(at)

    async def ask(self, method: str, url: str, body: object, model: type[ModelT]) -> ModelT:
        """One call whose answer is read by a model.

        Raises:
            Answered: it was not taken.
            Unreachable: no answer, or none of this tracker's.
        """
        answer = await self.tell(method, url, body)
        return read(model, answer.body)

    async def tell(self, method: str, url: str, body: object = None) -> Answer:
        """One call.

        Raises:
            Answered: it was not taken.
            Unreachable: no answer.
        """
        answer = await exchange(
            self.client,
            Call(
                method=method,
                url=url,
                headers={"Content-Type": "application/json", **self.headers},
                body=b"" if body is None else orjson.dumps(body),
                hidden=self.hidden,
                max_answer_bytes=MAX_TRACKER_ANSWER_BYTES,
            ),
        )
        if not answer.is_success:
            raise Answered(self.sent_of(answer, self.at))
        return answer


def read(model: type[ModelT], answer: bytes | Mapping[str, object]) -> ModelT:
    """An answer, or a part of one, as a model.

    Raises:
        Unreachable: it is not what this tracker answers.
    """
    try:
        if isinstance(answer, bytes):
            return model.model_validate_json(answer)
        return model.model_validate(answer)
    except ValidationError:
        raise Unreachable("the answer is not the one of this tracker") from None  # the cause shows it


class TicketTransport(Generic[FormT, SecretsT]):
    """Transport of the kinds that make tickets."""

    def __init__(
        self,
        reach: Reach,
        config: type[FormT],
        secrets: type[SecretsT],
        tracker: Callable[[AsyncClient, datetime, FormT, SecretsT], Tracker],
    ) -> None:
        self._reach = reach
        self._config = config
        self._secrets = secrets
        self._tracker = tracker

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """As `Transport.validate`."""
        check(self._reach, (self._config, config), (self._secrets, secrets))

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """As `Transport.send`; a repetition finds what the first attempt did, and does the rest.

        A test looks for a ticket that is not there: it proves address, credential and project.
        """
        if message.type not in {DETECTED, REOPENED, RESOLVED, TEST}:
            return Sent(_DONE, excerpt="nothing about a ticket")
        finding = finding_of(message)
        config = stored(self._config, endpoint.config, self._reach)
        secrets = stored(self._secrets, endpoint.secrets, self._reach)
        async with one_attempt():
            try:
                ticket = await _follow(self._tracker(client, at, config, secrets), message.type, finding)
            except Answered as answered:
                return answered.sent
        return Sent(_DONE, ticket_ref=ticket.ref if ticket else None)


def finding_of(message: Message) -> Finding:
    """The finding of an event.

    Raises:
        Rejected: the event is about several.
    """
    if message.digest_count != 1:
        raise Rejected("a digest has no ticket: it is about several findings")
    body, payload = message.body, message.body.get("payload")
    fields = payload if isinstance(payload, Mapping) else {}
    severity, check_id = fields.get("severity", "unknown"), fields.get("check_id", "finding")
    where = fields.get("url") or fields.get("asset_id") or ""
    return Finding(
        mark=f"runlane-{_NO_MARK.sub('', str(body.get('resourceId')))[:MAX_MARKED]}",
        event_mark=f"runlane-event-{message.event_id}",
        since=f"{str(body.get('occurredAt'))[:_WHOLE_SECONDS]}Z",
        title=plain(f"[{severity}] {check_id} {where}", MAX_SUMMARY),
        notice=notice_of(message),
    )


async def _follow(tracker: Tracker, event_type: str, finding: Finding) -> Ticket | None:
    """Brings the finding's ticket to where the event leads; None if there is none."""
    ticket = await tracker.find(finding)
    if event_type == RESOLVED and ticket is not None and ticket.is_open:
        await tracker.close(ticket)
    if event_type in {DETECTED, REOPENED} and ticket is None:
        return await tracker.open(finding)
    if event_type == REOPENED and ticket is not None:
        await _say_it_is_back(tracker, ticket, finding)
    return ticket


async def _say_it_is_back(tracker: Tracker, ticket: Ticket, finding: Finding) -> None:
    # first the comment: an attempt that ends between the two is then repeated as a whole
    if not await tracker.has_comment(ticket, finding):
        await tracker.comment(ticket, finding)
    if not ticket.is_open:
        await tracker.reopen(ticket)


def fenced(lines: list[str]) -> str:
    """Lines as a block of code in Markdown: nothing in them is a mention, a link or the end of the block."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}text", *lines, fence))
