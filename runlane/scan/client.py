"""The worker's side of the API: every call it makes, as typed functions.

Calls raise the error tree of `runlane.errors`: Refused kinds say that the same call will never go through,
Unavailable that it may later. Every call is safe to repeat: claims carry a key, results name their attempt.
"""

import asyncio
import base64
import hashlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self, TypeVar

import aiohttp
import orjson
from yarl import URL

from runlane import names
from runlane.backoff import Backoff
from runlane.errors import (
    Conflict,
    Defect,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from runlane.scan import wire

AnswerT = TypeVar("AnswerT")

_PREFIX: Final = "/v1/worker"
_JSON: Final = {"Content-Type": "application/json"}
_API_CONNECTIONS: Final = 16
"""At once, the control stream's included."""

_BUCKET_CONNECTIONS: Final = 100
_CONNECT_S: Final = 5.0
_CALL_S: Final = 15.0
_UPLOAD_S: Final = 120.0
_STREAM_SILENCE_S: Final = 8.0
"""The API says something every 2 s; a stream silent for longer is broken."""

_MAX_STREAM_LINE: Final = 65_536
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Far above the largest answer, a claim of 100 jobs: what comes beyond is not the API."""

_BACKOFF_FIRST: Final = timedelta(milliseconds=100)
_BACKOFF_MOST: Final = timedelta(seconds=5)

_REFUSALS: Final[Mapping[int, type[Refused]]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Invalid,
}
_TRY_AGAIN: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return _is_success(self.status)


class WorkerApi:
    """One connection pool to the API and, for uploads, one to the bucket; open inside `async with`."""

    _http: aiohttp.ClientSession
    _bucket: aiohttp.ClientSession

    def __init__(self, base_url: str) -> None:
        self._root = base_url.rstrip("/") + _PREFIX

    async def __aenter__(self) -> Self:
        self._http = _session(_API_CONNECTIONS)
        self._bucket = _session(_BUCKET_CONNECTIONS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        await self._bucket.close()

    async def join(self, request: wire.JoinRequest, credential: str) -> wire.Joined:
        """Joins with the enrolment key or the worker's own token; later calls are made as that worker."""
        body = {
            "name": request.name,
            "toolsets": list(request.toolsets),
            "slots": dict(request.slots),
            "tools": dict(request.tools),
            "version": request.version,
            "protocol": request.protocol,
            "incarnation": request.incarnation,
        }
        self._http.headers["Authorization"] = f"Bearer {credential}"
        joined = wire.read_joined(await self._post("/join", body))
        self._http.headers["Authorization"] = f"Bearer {joined.token or credential}"
        self._http.headers[names.WORKER_INCARNATION_HEADER] = request.incarnation
        return joined

    async def heartbeat(self, beat: wire.Beat) -> tuple[tuple[str, int], ...]:
        """Says what runs here; returns those jobs, with attempts, that are no longer this worker's."""
        running = [{"job_id": job_id, "attempt": attempt} for job_id, attempt in beat.running]
        body = {"slots_free": beat.slots_free, "draining": beat.is_draining, "running": running}
        return wire.read_cancels(await self._post("/heartbeat", body))

    async def claim(self, dispatch_id: str, claim_key: str, slots: int) -> wire.Claimed:
        """Takes up to `slots` jobs of a dispatch; the same key gets the same answer."""
        body = {"dispatch_id": dispatch_id, "claim_key": claim_key, "slots": slots}
        return wire.read_claimed(await self._post("/claims", body))

    async def results(self, header: Mapping[str, object], body: bytes | None) -> wire.StageAnswer:
        """Delivers results; `header` has all but the body."""
        encoded = base64.b64encode(body).decode() if body is not None else None
        return wire.read_stage_answer(await self._post("/results", {**header, "body": encoded}))

    async def upload(self, dispatch_id: str, body: bytes) -> wire.StagedObject:
        """Uploads a result to the bucket, at a key that the API names for this one call."""
        sha256 = hashlib.sha256(body).hexdigest()
        request = {"dispatch_id": dispatch_id, "size": len(body), "sha256": sha256}
        slot = wire.read_upload_slot(await self._post("/uploads", request))
        try:
            async with asyncio.timeout(_UPLOAD_S):
                # The signature is of the URL as it is: it must not be quoted anew.
                target = URL(slot.url, encoded=True)
                answer = await _answer(self._bucket.put(target, data=io.BytesIO(body), allow_redirects=False))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"the bucket does not answer: {_cause(error)}") from error
        if not answer.is_success:
            # A signature that has expired meanwhile is renewed by the next try: it asks for a new URL.
            raise Unavailable(f"the bucket answered {answer.status}")
        return wire.StagedObject(slot.key, len(body), sha256)

    async def leave(self) -> None:
        """Says that this incarnation ends, once every batch has been answered for."""
        await self._post("/leave", {})

    async def stream(self) -> AsyncIterator[Mapping[str, object]]:
        """Control messages from the API until the stream ends.

        Raises:
            Unavailable: it broke or fell silent.
        """
        timeout = aiohttp.ClientTimeout(
            connect=_STREAM_SILENCE_S, sock_connect=_CONNECT_S, sock_read=_STREAM_SILENCE_S
        )
        try:
            async with self._http.get(
                f"{self._root}/stream", timeout=timeout, allow_redirects=False
            ) as response:
                if not _is_success(response.status):
                    async with asyncio.timeout(_CALL_S):
                        raise _error(_Answer(response.status, await _body(response)))
                rest = b""
                while chunk := await _next_chunk(response):
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _MAX_STREAM_LINE:
                        raise Unavailable("a line of the control stream does not end")
                    for line in lines:
                        yield _object(line)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"the control stream broke: {_cause(error)}") from error

    async def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        content = orjson.dumps(body)
        try:
            async with asyncio.timeout(_CALL_S):
                answer = await self._call(f"{self._root}{path}", content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"the API does not answer: {_cause(error)}") from error
        if not answer.is_success:
            raise _error(answer)
        return _object(answer.body) if answer.body else {}

    async def _call(self, url: str, content: bytes) -> _Answer:
        def post() -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
            return self._http.post(url, data=io.BytesIO(content), headers=_JSON, allow_redirects=False)

        try:
            return await _answer(post())
        except aiohttp.ClientConnectorError:
            raise  # nobody is there
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # The server closed the idle connection just when the call went out on it. aiohttp sends again
            # what HTTP calls idempotent, which no POST is; our calls are.
            return await _answer(post())


async def until_answered(call: Callable[[], Awaitable[AnswerT]], patience_s: float) -> AnswerT:
    """Makes a call again while the answer is Unavailable, with growing pauses.

    Raises:
        Unavailable: `patience_s` is over.
        Refused: the API said no.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    backoff = new_backoff()
    while True:
        try:
            return await call()
        except Unavailable:
            pause_s = backoff.next().total_seconds()
            if asyncio.get_running_loop().time() + pause_s > deadline:
                raise
            await asyncio.sleep(pause_s)


def new_backoff(most: timedelta = _BACKOFF_MOST) -> Backoff:
    """Pauses between tries: up to 0.1 s, doubled each time up to `most`, at least half of that.

    Spread widely: a fleet of workers loses its API at the same moment.
    """
    return Backoff(_BACKOFF_FIRST, most, spread=(0.5, 1.0))


def _session(connections: int) -> aiohttp.ClientSession:
    # Idle connections are dropped before the server does it, which would look like a lost call.
    connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=4.0)
    return aiohttp.ClientSession(
        connector=connector,
        # Whoever makes a call bounds it as a whole, its repetition included.
        timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_S),
        # Nothing is unpacked, so what was read is what is held.
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
        skip_auto_headers=("Content-Type",),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


async def _answer(request: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> _Answer:
    async with request as response:
        return _Answer(response.status, await _body(response))


async def _body(response: aiohttp.ClientResponse) -> bytes:
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            raise Unavailable(f"an answer of more than {_MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """What was sent since, as soon as there is something; empty at the end."""
    # aiohttp's own limit of silence is forgotten when a later chunk of an answer is malformed.
    async with asyncio.timeout(_STREAM_SILENCE_S):
        return await response.content.readany()


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _cause(error: Exception) -> str:
    """Nothing but the kind, unless only the connection failed: other texts show tokens and signed URLs."""
    return str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__


def _object(text: bytes) -> Mapping[str, object]:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unavailable("the API answered something that is no JSON") from error
    if not isinstance(value, dict):
        raise Defect("the API answered something that is no object")
    return value


def _error(answer: _Answer) -> Refused | Unavailable:
    try:
        problem: object = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        problem = {}
    fields = problem if isinstance(problem, dict) else {}
    detail = str(fields.get("detail") or f"the API answered {answer.status}")
    code = str(fields["code"]) if "code" in fields else None
    if answer.status >= 500 or answer.status in _TRY_AGAIN:
        return Unavailable(detail, code=code)
    return _REFUSALS.get(answer.status, Refused)(detail, code=code)
