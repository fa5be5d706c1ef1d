"""Slack, and what takes the same incoming webhooks. Source: Slack, Incoming webhooks; Block Kit.

Values stand in objects of type `plain_text`, which no markup is read in; the three characters that Slack
reads everywhere are escaped besides.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import orjson
from httpx2 import AsyncClient

from runlane.outbound.config import EndpointUrl, Form, check, stored
from runlane.outbound.exchange import Answer, Call, exchange, hidden_parts, one_attempt
from runlane.outbound.reach import Reach
from runlane.outbound.transport import Endpoint, Gone, Message, Rejected, Sent
from runlane.outbound.wording import Notice, notice_of

MAX_HEADER: Final = 150
MAX_FIELD: Final = 2_000
MAX_TEXT: Final = 3_000
"""Characters, escapes included, of a header, a field of a section, and any other text."""

_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_GONE: Final = ("channel_is_archived", "no_service", "no_team", "invalid_token", "team_disabled")
_REFUSED: Final = frozenset({400, 403, 404})


class SlackConfig(Form):
    """Nothing: the address says the channel."""


class SlackSecrets(Form):
    """The address of the incoming webhook is the credential."""

    url: EndpointUrl


class SlackTransport:
    """Transport of kind `slack`."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """As `Transport.validate`."""
        check(self._reach, (SlackConfig, config), (SlackSecrets, secrets))

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """As `Transport.send`. Slack knows no repetition: if an answer is lost, two messages are seen."""
        url = stored(SlackSecrets, endpoint.secrets, self._reach).url
        async with one_attempt():
            answer = await exchange(
                client,
                Call(
                    method="POST",
                    url=url,
                    headers={"Content-Type": "application/json"},
                    body=orjson.dumps(render(notice_of(message))),
                    hidden=(url, *hidden_parts(url)),
                ),
            )
        return _judged(answer, at)


def render(notice: Notice) -> dict[str, object]:
    """The body of a message: blocks, and a text for where blocks are not shown."""
    fields = [_text(f"{name}\n{value}", MAX_FIELD) for name, value in notice.facts]
    return {
        "text": escape(notice.title, MAX_TEXT),
        "mrkdwn": False,
        # what a hostile host wrote must not be fetched for a preview
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": _text(notice.title, MAX_HEADER)},
            {"type": "section", "fields": fields},
            {"type": "context", "elements": [_text(notice.footer, MAX_TEXT)]},
        ],
    }


def escape(text: str, limit: int) -> str:
    """The text without Slack's control characters, cut to `limit`, never inside an escape."""
    escaped = [_ESCAPES.get(character, character) for character in text]
    if sum(map(len, escaped)) <= limit:
        return "".join(escaped)
    kept, room = [], limit - 1
    for piece in escaped:
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"


def _text(text: str, limit: int) -> dict[str, object]:
    return {"type": "plain_text", "text": escape(text, limit), "emoji": False}


def _judged(answer: Answer, at: datetime) -> Sent:
    told = answer.body[:200].decode("utf-8", errors="replace").strip()
    if told in _GONE:
        raise Gone(f"Slack: {told}")
    if answer.status in _REFUSED:
        raise Rejected(f"Slack answered {answer.status}: {answer.excerpt}")
    return answer.sent(at)
