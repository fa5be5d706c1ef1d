"""The lab's services on real sockets: a small HTTP/1.1 server, and line protocols that only say hello."""

import asyncio
import base64
import ssl
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus

from runlane.lab.connections import Connections
from runlane.lab.content import Answer, Origin, answer
from runlane.lab.model import Listener, Talk, Web

_IDLE_S = 10.0
_HEAD_LIMIT_BYTES = 16_384
_BODY_LIMIT_BYTES = 65_536


class _BadRequestError(Exception):
    """The client did not speak HTTP/1.x well enough to be answered with content."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    host: str
    login: tuple[str, str] | None


def serve_listener(
    listener: Listener, hits: Counter[str], latency_s: float, tls: ssl.SSLContext | None
) -> Connections:
    """Makes the server of one listener, not yet listening. HTTP requests are counted in `hits` by host."""
    match listener.speaks:
        case Talk() as talk:
            return Connections(_TalkServer(talk).serve, latency_s, tls)
        case Web() as web:
            scheme = "https" if tls is not None else "http"
            return Connections(_WebServer(web, scheme, listener.port, hits).serve, latency_s, tls)


class _TalkServer:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greets, waits for any words of the client, says farewell. The answer never depends on what came."""
        if self._talk.greeting is not None:
            writer.write(f"{self._talk.greeting}\r\n".encode())
            await writer.drain()
        async with asyncio.timeout(_IDLE_S):
            heard = await reader.read(_HEAD_LIMIT_BYTES)
        if heard and self._talk.farewell is not None:
            writer.write(f"{self._talk.farewell}\r\n".encode())
            await writer.drain()


class _WebServer:
    """One request per connection, so that the latency of a connection is the latency of a request."""

    def __init__(self, web: Web, scheme: str, port: int, hits: Counter[str]) -> None:
        self._web = web
        self._scheme = scheme
        self._port = port
        self._hits = hits

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_IDLE_S):
                request = await _read_request(reader)
        except _BadRequestError:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        self._hits[request.host] += 1
        await asyncio.sleep(self._web.site_for(request.host).delay_ms / 1000)
        origin = Origin(self._scheme, request.host, self._port)
        reply = answer(self._web, origin, request.target, request.login)
        writer.write(_encode(reply, with_body=request.method != "HEAD"))
        await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> _Request:
    first = await reader.readexactly(1)
    if not first.isalpha():
        # A TLS hello or another protocol may hold no line end; waiting for one would stall the scanner.
        raise _BadRequestError
    head = first + await reader.readuntil(b"\r\n\r\n")
    if len(head) > _HEAD_LIMIT_BYTES:
        raise _BadRequestError
    request_line, *lines = head.decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        raise _BadRequestError
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)
    }
    if "host" not in fields:
        raise _BadRequestError
    await reader.readexactly(_body_size(fields))
    host = fields["host"].rpartition(":")[0] or fields["host"]
    return _Request(words[0], words[1], host, _read_login(fields.get("authorization", "")))


def _read_login(text: str) -> tuple[str, str] | None:
    scheme, _, encoded = text.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError as error:
        raise _BadRequestError from error
    return name, password


def _body_size(fields: dict[str, str]) -> int:
    """Length of the request body. It is read and dropped: closing before it would reset the connection."""
    text = fields.get("content-length", "0")
    if not text.isdecimal() or int(text) > _BODY_LIMIT_BYTES:
        raise _BadRequestError
    return int(text)


def _encode(reply: Answer, *, with_body: bool) -> bytes:
    reason = HTTPStatus(reply.status).phrase
    fields = {**reply.headers, "Content-Length": str(len(reply.body)), "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {reply.status} {reason}\r\n{head}\r\n".encode() + (reply.body if with_body else b"")
