"""Telegram. Source: Telegram, Bot API, `sendMessage`.

The bot's token is part of the path, so the path is kept out of every error and log line.
"""

from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Annotated, Final

import orjson
from httpx2 import AsyncClient
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from runlane.outbound.config import BaseUrl, Form, check, stored
from runlane.outbound.exchange import MAX_RETRY_AFTER_S, Answer, Call, exchange, one_attempt
from runlane.outbound.reach import Reach
from runlane.outbound.transport import Endpoint, Gone, Message, Rejected, Sent
from runlane.outbound.wording import Notice, notice_of

API_URL: Final = "https://api.telegram.org"
MAX_MESSAGE: Final = 4_096
"""UTF-16 units of a message; counted with its markup, so that it is never longer."""

_GONE: Final = frozenset({401, 403, 404})
_REFUSED: Final = 400

_ChatName = Annotated[str, StringConstraints(pattern=r"^@[A-Za-z][A-Za-z0-9_]{3,63}$")]


class TelegramConfig(Form):
    """The chat, by its number or as `@channel`, and the thread in it."""

    chat_id: Annotated[int, Field(strict=True)] | _ChatName
    thread_id: Annotated[int, Field(strict=True, gt=0)] | None = None
    api_url: BaseUrl = API_URL


class TelegramSecrets(Form):
    """The bot's token."""

    token: Annotated[str, StringConstraints(pattern=r"^[0-9]{3,20}:[A-Za-z0-9_-]{20,100}$")]


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="ignore")
    retry_after: Annotated[int, Field(ge=0)] | None = None


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")
    ok: bool
    error_code: int = 200
    parameters: _Parameters = _Parameters()


class TelegramTransport:
    """Transport of kind `telegram`."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """As `Transport.validate`."""
        check(self._reach, (TelegramConfig, config), (TelegramSecrets, secrets))

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """As `Transport.send`. Telegram knows no repetition: if an answer is lost, two messages are seen."""
        config = stored(TelegramConfig, endpoint.config, self._reach)
        token = stored(TelegramSecrets, endpoint.secrets, self._reach).token
        async with one_attempt():
            answer = await exchange(
                client,
                Call(
                    method="POST",
                    url=f"{config.api_url}/bot{token}/sendMessage",
                    headers={"Content-Type": "application/json"},
                    body=orjson.dumps(_body(config, notice_of(message))),
                    hidden=(token, token.partition(":")[2]),
                ),
            )
        return _judged(answer, at)


def render(notice: Notice) -> str:
    """The notice as Telegram's HTML, in lines that are left out whole when there is no room for them.

    Values stand as code: nothing in them is a mention or a link.
    """
    lines = [
        f"<b>{escape(notice.title)}</b>",
        *(f"<b>{escape(name)}:</b> <code>{escape(value)}</code>" for name, value in notice.facts),
        f"<i>{escape(notice.footer)}</i>",
    ]
    kept: list[str] = []
    room = MAX_MESSAGE - _units("\n…")
    for line in lines:
        room -= _units(line) + 1
        if room < 0:
            return "\n".join([*kept, "…"])
        kept.append(line)
    return "\n".join(kept)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _body(config: TelegramConfig, notice: Notice) -> dict[str, object]:
    body: dict[str, object] = {
        "chat_id": config.chat_id,
        "text": render(notice),
        "parse_mode": "HTML",
        # what a hostile host wrote must not be fetched for a preview
        "link_preview_options": {"is_disabled": True},
    }
    if config.thread_id is not None:
        body["message_thread_id"] = config.thread_id
    return body


def _judged(answer: Answer, at: datetime) -> Sent:
    reply = _reply(answer)
    status = answer.status if reply.ok else max(answer.status, reply.error_code)
    if status in _GONE:
        raise Gone(f"Telegram answered {status}: {answer.excerpt}")
    if status == _REFUSED:
        raise Rejected(f"Telegram answered {status}: {answer.excerpt}")
    sent = answer.sent(at, status=status)
    if reply.parameters.retry_after is None:
        return sent
    return Sent(sent.status, min(float(reply.parameters.retry_after), MAX_RETRY_AFTER_S), sent.excerpt)


def _reply(answer: Answer) -> _Reply:
    try:
        return _Reply.model_validate_json(answer.body)
    except ValidationError:
        # what is not Telegram's is no success, whatever its status says
        return _Reply(ok=False, error_code=502 if answer.is_success else answer.status)
