"""Webhooks: the outbound body as JSON, signed. Source: Standard Webhooks."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import orjson
from httpx2 import AsyncClient
from pydantic import AfterValidator, ConfigDict, Field, RootModel, StringConstraints, model_validator

from runlane.outbound.config import EndpointUrl, Form, check, stored
from runlane.outbound.exchange import Call, exchange, hidden_parts, one_attempt
from runlane.outbound.reach import Reach
from runlane.outbound.signing import MalformedKey, signed_headers
from runlane.outbound.transport import Endpoint, Message, Rejected, Sent

HEADER_PREFIX: Final = "header."
"""The secret `header.X-Api-Key` is the value of the header `X-Api-Key`."""

MAX_HEADERS: Final = 20

_HEADER: Final = re.compile(r"header\.[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_DENIED: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te"}
    | {"trailer", "upgrade", "expect", "accept-encoding", "user-agent"}
)
_DENIED_PREFIXES: Final = ("webhook-", "runlane-", "proxy-")


class WebhookConfig(Form):
    """Where to send."""

    url: EndpointUrl


def _header_name(secret: str) -> str:
    if not _HEADER.fullmatch(secret):
        raise ValueError("the secrets of a webhook are named header.<name of the header>")
    name = secret.removeprefix(HEADER_PREFIX).lower()
    if name in _DENIED or name.startswith(_DENIED_PREFIXES):
        raise ValueError("this header is not yours to set")
    return secret


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=4_096)]


class WebhookSecrets(RootModel[Annotated[dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS)]]):
    """Headers that are sent besides ours."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _has_each_once(self) -> "WebhookSecrets":
        if len({name.lower() for name in self.root}) < len(self.root):
            raise ValueError("a header is named twice")
        return self


class WebhookTransport:
    """Transport of kind `webhook`."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def validate(self, config: Mapping[str, object], secrets: Mapping[str, str] | None) -> None:
        """As `Transport.validate`."""
        check(self._reach, (WebhookConfig, config), (WebhookSecrets, secrets))

    async def send(self, client: AsyncClient, endpoint: Endpoint, message: Message, at: datetime) -> Sent:
        """As `Transport.send`. What is signed is what is sent, byte by byte."""
        config = stored(WebhookConfig, endpoint.config, self._reach)
        secrets = stored(WebhookSecrets, endpoint.secrets, self._reach).root
        body = orjson.dumps(message.body)
        async with one_attempt():
            answer = await exchange(
                client,
                Call(
                    method="POST",
                    url=config.url,
                    headers={
                        "Content-Type": "application/json",
                        **{name.removeprefix(HEADER_PREFIX): value for name, value in secrets.items()},
                        **_place(message),
                        **_signed(endpoint, message, at, body),
                    },
                    body=body,
                    hidden=(*secrets.values(), *endpoint.signing, *hidden_parts(config.url)),
                ),
            )
        return answer.sent(at)


def _place(message: Message) -> dict[str, str]:
    """What a receiver needs to put events into order, and to know a digest; it is no part of the body."""
    return {
        "runlane-sequence": str(message.sequence),
        "runlane-events": str(message.digest_count),
    }


def _signed(endpoint: Endpoint, message: Message, at: datetime, body: bytes) -> dict[str, str]:
    if not endpoint.signing:
        raise Rejected("the webhook has no signing key")
    try:
        return signed_headers(endpoint.signing, str(message.event_id), at, body)
    except MalformedKey as error:
        raise Rejected(str(error)) from error
