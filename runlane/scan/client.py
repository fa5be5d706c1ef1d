"""The worker's side of the API: every call it makes, as typed functions.

Calls raise the error tree of `runlane.errors`: Refused kinds say that the same call will never go through,
Unavailable that it may later. Every call is safe to repeat: claims carry a key, results name their attempt.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Self, TypeVar

import httpx2
import orjson

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
_CONNECTIONS: Final = 16
"""To the API at once, the control stream's included: the pool looks at each of them for every call."""

_TIMEOUT: Final = httpx2.Timeout(15.0, connect=5.0)
_UPLOAD_TIMEOUT: Final = httpx2.Timeout(120.0, connect=5.0)
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


class WorkerApi:
    """One connection pool to the API and, for uploads, one to the bucket."""

    def __init__(self, base_url: str) -> None:
        # Idle connections are dropped before the server does it, which would look like a lost call.
        limits = httpx2.Limits(
            max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=4.0
        )
        self._http = httpx2.AsyncClient(
            base_url=base_url,
            timeout=_TIMEOUT,
            trust_env=False,
            limits=limits,
            headers={"Accept-Encoding": "identity"},  # so what was read is what is held
        )
        self._bucket = httpx2.AsyncClient(timeout=_UPLOAD_TIMEOUT, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
        await self._bucket.aclose()

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
        self.use_token(credential)
        joined = wire.read_joined(await self._post("/join", body))
        self.use_token(joined.token or credential)
        self._http.headers[names.WORKER_INCARNATION_HEADER] = request.incarnation
        return joined

    async def heartbeat(self, beat: wire.Beat) -> wire.BeatAnswer:
        """Says what runs here; returns what is no longer this worker's, and whether a new token is due."""
        running = [{"job_id": job_id, "attempt": attempt} for job_id, attempt in beat.running]
        body = {"slots_free": beat.slots_free, "draining": beat.is_draining, "running": running}
        return wire.read_beat_answer(await self._post("/heartbeat", body))

    async def new_credential(self) -> str:
        """Gets a new token; the old one is good until this one is used."""
        return wire.read_credential(await self._post("/credential", {}))

    def use_token(self, token: str) -> None:
        """Makes later calls with this token."""
        self._http.headers["Authorization"] = f"Bearer {token}"

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
            answer = await self._bucket.put(slot.url, content=body)
        except httpx2.TransportError as error:
            raise Unavailable(f"the bucket does not answer: {error!r}") from error
        if not answer.is_success:
            # A signature that has expired meanwhile is renewed by the next try: it asks for a new URL.
            raise Unavailable(f"the bucket answered {answer.status_code}")
        return wire.StagedObject(slot.key, len(body), sha256)

    async def tail(self, job_id: str, attempt: int, first: int, lines: Sequence[str]) -> None:
        """Sends lines that a job has written, for whoever looks at it now."""
        await self._post(
            "/tails", {"job_id": job_id, "attempt": attempt, "first": first, "lines": list(lines)}
        )

    async def leave(self) -> None:
        """Says that this incarnation ends, once every batch has been answered for."""
        await self._post("/leave", {})

    async def stream(self) -> AsyncIterator[Mapping[str, object]]:
        """Control messages from the API until the stream ends.

        Raises:
            Unavailable: it broke or fell silent.
        """
        timeout = httpx2.Timeout(_STREAM_SILENCE_S, connect=5.0)
        try:
            async with self._http.stream("GET", f"{_PREFIX}/stream", timeout=timeout) as answer:
                if not answer.is_success:
                    raise _error(answer.status_code, await _body(answer))
                rest = b""
                async for chunk in answer.aiter_raw():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _MAX_STREAM_LINE:
                        raise Unavailable("a line of the control stream does not end")
                    for line in lines:
                        yield _object(line)
        except httpx2.TransportError as error:
            raise Unavailable(f"the control stream broke: {error!r}") from error

    async def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        content = orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        call = self._http.stream("POST", f"{_PREFIX}{path}", content=content, headers=headers)
        try:
            async with call as answer:
                text = await _body(answer)
        except httpx2.TransportError as error:
            raise Unavailable(f"the API does not answer: {error!r}") from error
        if not answer.is_success:
            raise _error(answer.status_code, text)
        return _object(text) if text else {}


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


async def _body(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise Unavailable(f"an answer of more than {_MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _object(text: bytes) -> Mapping[str, object]:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unavailable("the API answered something that is no JSON") from error
    if not isinstance(value, dict):
        raise Defect("the API answered something that is no object")
    return value


def _error(status: int, body: bytes) -> Refused | Unavailable:
    try:
        problem: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        problem = {}
    fields = problem if isinstance(problem, dict) else {}
    detail = str(fields.get("detail") or f"the API answered {status}")
    code = str(fields["code"]) if "code" in fields else None
    if status >= 500 or status in _TRY_AGAIN:
        return Unavailable(detail, code=code)
    return _REFUSALS.get(status, Refused)(detail, code=code)
