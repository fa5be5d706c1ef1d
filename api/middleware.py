"""What wraps every request, whoever asks: its id, and the limit of its body."""

import re
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runlane import names
from runlane.errors import TooLarge

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{8,64}\Z")


def request_id_of(scope: Scope) -> str:
    """Id of the request, as in its answer and in the log."""
    return str(scope.get("state", {}).get("request_id", ""))


class RequestId:
    """Gives each request an id (the caller's, if it looks like one) and binds it to its log lines."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(names.REQUEST_ID_HEADER, "")
        request_id = given if _REQUEST_ID.match(given) else uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[names.REQUEST_ID_HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._app(scope, receive, send_with_id)


class BodyLimit:
    """Refuses a body that is too large before the rest of it is read, and hands on the others whole.

    A route gets its body in one piece, so at most `limit_bytes` of one request are held. TooLarge is raised:
    what turns it into an answer stands around it.
    """

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if not ("content-length" in headers or "transfer-encoding" in headers):
            await self._app(scope, receive, send)
            return
        body = await self._read(headers.get("content-length", ""), receive)
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, announced: str, receive: Receive) -> bytes | None:
        """Returns the body, or None if the client is gone."""
        too_large = TooLarge(f"a body has at most {self._limit_bytes} bytes")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._limit_bytes:
            raise too_large
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limit_bytes:
                raise too_large
            if not message.get("more_body"):
                return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
