"""One request and its answer, within bounds; nothing of it that is kept holds what the request hides."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ssl import SSLCertVerificationError
from typing import Final
from urllib.parse import quote, urlsplit

import httpcore2
import httpx2

from runlane.events import scrub_text
from runlane.outbound.transport import MAX_ANSWER_BYTES, MAX_EXCERPT, TOTAL_S, Rejected, Sent, Unreachable

MAX_RETRY_AFTER_S: Final = 86_400.0
"""Longest wait that an endpoint may ask for."""

MASK: Final = "***"

_MIN_HIDDEN: Final = 4
"""Characters from which a text is masked: shorter ones are everywhere."""

_MAX_LOOKED_AT: Final = 8 * MAX_EXCERPT
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_TROUBLE: Final = (
    httpx2.HTTPError,
    httpx2.StreamError,
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Call:
    """What is sent. `hidden`: texts of it that stand in no error, log line or excerpt."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    hidden: tuple[str, ...] = field(default=(), repr=False)
    max_answer_bytes: int = MAX_ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, of whatever status. `headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    hidden: tuple[str, ...] = field(default=(), repr=False)
    is_cut: bool = False
    """Whether there was more of the body than was read."""

    @property
    def is_success(self) -> bool:
        """Whether it was taken: a redirect is not followed and is a failure."""
        return 200 <= self.status < 300

    @property
    def excerpt(self) -> str:
        """The start of the body as text that may be kept."""
        # where the body is cut, half of something hidden may stand, which would not be known for it
        doubtful = max(map(len, self.hidden), default=0) if self.is_cut else 0
        shown = self.body[: len(self.body) - 3 * doubtful]
        return excerpt(shown.decode("utf-8", errors="replace"), self.hidden)

    def sent(self, at: datetime, *, status: int | None = None, ticket_ref: str | None = None) -> Sent:
        """What is told of it; `status` where the answer means another one than it says."""
        return Sent(
            status or self.status,
            retry_after_s(self.headers.get("retry-after", ""), at),
            self.excerpt,
            ticket_ref,
        )


@asynccontextmanager
async def one_attempt() -> AsyncIterator[None]:
    """Bounds all that one attempt does.

    Raises:
        Unreachable: it took longer.
    """
    try:
        async with asyncio.timeout(TOTAL_S):
            yield
    except TimeoutError as error:
        raise Unreachable(f"no answer within {TOTAL_S:g} s") from error


async def exchange(client: httpx2.AsyncClient, call: Call) -> Answer:
    """Sends one request and reads its answer up to the bound. Follows nothing, tries nothing again.

    Raises:
        Unreachable: no answer; the text tells neither path nor headers.
        Rejected: the guard does not let it out.
    """
    try:
        response = await client.send(_request(client, call), stream=True)
        try:
            body = await _read(response, call.max_answer_bytes)
        finally:
            await response.aclose()
    except httpx2.InvalidURL as error:
        raise Rejected("not an address that can be sent to") from error
    except _TROUBLE as error:
        raise Unreachable(excerpt(_why(error), call.hidden)) from error
    headers = {name.lower(): value for name, value in response.headers.items()}
    is_cut = len(body) > call.max_answer_bytes
    return Answer(response.status_code, headers, body[: call.max_answer_bytes], call.hidden, is_cut)


def hidden_parts(url: str) -> tuple[str, ...]:
    """What of an address may be a credential: its path and its query."""
    parts = urlsplit(url)
    return tuple(part for part in (parts.path.strip("/"), parts.query) if part)


def retry_after_s(text: str, now: datetime) -> float | None:
    """Seconds that a `Retry-After` asks for, never negative, bounded; None if it says nothing readable.

    Source: RFC 9110 §10.2.3, both forms.
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
        wait_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return min(max(wait_s.total_seconds(), 0.0), MAX_RETRY_AFTER_S)


def excerpt(text: str, hidden: tuple[str, ...]) -> str:
    """The start of a text without what is hidden, credentials and control characters. Idempotent."""
    for secret in sorted(hidden, key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), secret.replace("/", "\\/")}:
            if len(form) >= _MIN_HIDDEN:
                text = text.replace(form, MASK)
    return _CONTROL.sub(" ", scrub_text(text[:_MAX_LOOKED_AT]))[:MAX_EXCERPT].strip()


def _request(client: httpx2.AsyncClient, call: Call) -> httpx2.Request:
    parts = urlsplit(call.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return client.build_request(
        call.method,
        # the library logs the URL of a request, and a path may be a credential: it goes beside it
        f"{parts.scheme}://{parts.netloc}/",
        headers=call.headers,
        content=call.body or None,
        extensions={"target": target.encode("ascii")},
    )


async def _read(response: httpx2.Response, limit: int) -> bytes:
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > limit:
            break
    return body


def _why(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
