"""What scan workers call: a private protocol between two of our programs, versioned by `WORKER_PROTOCOL`.

Hosts are not trusted: what they send is checked against rows or cleaned. Every call but the first join
carries the worker's token and its current incarnation. Bodies are read by hand: claims and results are the
hot path.
"""

import binascii
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ValidationError

from api.control import ControlHub, ControlStream
from api.deps import resources_of
from api.gate import Caller, caller_of, worker_of
from api.resources import Resources
from api.worker_bodies import (
    ClaimBody,
    HeartbeatBody,
    JoinBody,
    JoinHead,
    ResultsBody,
    TailBody,
    UploadBody,
)
from runlane import names
from runlane.db import claims, credentials, staging, tails, uploads, workers
from runlane.db.claimed_secrets import with_secrets
from runlane.db.keys import Principal, Scope
from runlane.db.pool import Connection
from runlane.db.workers import DispatchContext, Worker
from runlane.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge, Unavailable
from runlane.protocol import Skew, skew_of
from runlane.storage import UPLOAD_EXPIRY, is_object_key, object_key

HEARTBEAT_S: Final = 5.0
"""Time between heartbeats of a worker: how late a lost cancel is made up for."""

router = APIRouter(prefix="/worker", tags=["worker"], include_in_schema=False)

BodyT = TypeVar("BodyT", bound=BaseModel)


@router.post("/join")
async def join(request: Request) -> Response:
    """Enrols a host with an enrolment key, or begins a new life of one that has a token."""
    resources, caller = resources_of(request), caller_of(request)
    if isinstance(caller, Principal):
        caller.require(Scope.WORKER_JOIN)
    await _require_protocol(request, caller, await _read(request, JoinHead))
    body = await _read(request, JoinBody)
    async with resources.system_pool.acquire() as conn:
        if isinstance(caller, Worker):
            return _joined(request, await _rejoin(request, conn, caller, body.life), None)
        async with conn.transaction():
            home = workers.Home(caller.workspace_id, caller.network_id)
            worker, token = await workers.enrol(conn, home, body.life, resources.pepper)
    return _joined(request, worker, token)


async def _require_protocol(request: Request, caller: Caller, head: JoinHead) -> None:
    """Passes if the API and the worker understand each other; what else the worker says is read after that.

    Raises:
        Conflict: `worker.protocol`.
    """
    skew = skew_of(head.protocol, names.WORKER_PROTOCOL)
    if skew in {Skew.NONE, Skew.BEHIND}:
        return
    advice = "upgrade the worker" if skew is Skew.TOO_OLD else "upgrade the API first"
    detail = f"this API speaks worker protocol {names.WORKER_PROTOCOL}, the worker {head.protocol}: {advice}"
    if isinstance(caller, Worker):
        async with resources_of(request).system_pool.acquire() as conn:
            await _note(request, conn, _Refusal(caller, head.incarnation, detail))
    raise Conflict(detail, code="worker.protocol")


async def _rejoin(request: Request, conn: Connection, known: Worker, life: workers.Life) -> Worker:
    try:
        async with conn.transaction():
            return await workers.rejoin(conn, known, life)
    except Conflict as error:
        await _note(request, conn, _Refusal(known, life.incarnation, error.detail))
        raise


@dataclass(frozen=True, slots=True)
class _Refusal:
    worker: Worker
    incarnation: UUID
    reason: str


async def _note(request: Request, conn: Connection, refusal: _Refusal) -> None:
    """Publishes that a host was refused: once for each of its lives, since it tries again and again."""
    if resources_of(request).control.is_first_rejection(refusal.incarnation):
        await workers.reject(conn, refusal.worker, refusal.incarnation, refusal.reason)


def _joined(request: Request, worker: Worker, token: str | None) -> Response:
    settings = resources_of(request).settings
    queues = [
        {"toolset": toolset, "task_queue": queue, "slots": worker.slots[toolset]}
        for toolset, queue in worker.queues.items()
    ]
    return _json(
        {
            "worker_id": worker.worker_id,
            "token": token,
            "heartbeat_s": HEARTBEAT_S,
            "workspace_id": worker.workspace_id,
            "queues": queues,
            "temporal": {"address": settings.gateway_address, "namespace": settings.temporal_namespace},
            "inline_bytes": settings.stage_inline_bytes,
            "protocol": names.WORKER_PROTOCOL,
        }
    )


@router.post("/heartbeat")
async def heartbeat(request: Request) -> Response:
    """Notes that the worker lives; answers with the jobs that are not, or no longer, its own.

    Says as well whether the worker is to ask for a new credential.
    """
    worker, resources = _worker(request), resources_of(request)
    body = await _read(request, HeartbeatBody)
    running = [(job.job_id, job.attempt) for job in body.running]
    async with resources.system_pool.acquire() as conn, conn.transaction():
        lost = await workers.beat(conn, worker, running, is_draining=body.draining)
        must_rotate = await credentials.is_rotation_due(conn, worker.worker_id, _most_days(resources))
    cancel = [{"job_id": job_id, "attempt": attempt} for job_id, attempt in lost]
    return _json({"cancel": cancel, "rotate": must_rotate})


@router.post("/credential")
async def credential(request: Request) -> Response:
    """Gives the worker a new token. The first call that is made with it replaces the old one."""
    worker, resources = _worker(request), resources_of(request)
    async with resources.system_pool.acquire() as conn, conn.transaction():
        token = await credentials.issue_token(conn, worker, resources.pepper, _most_days(resources))
    return _json({"token": token})


def _most_days(resources: Resources) -> int:
    return resources.settings.worker_credential_days


@router.get("/stream")
async def stream(request: Request) -> StreamingResponse:
    """The control stream: NDJSON down, presence by being open."""
    lines = _lines(resources_of(request).control, _worker(request))
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _lines(hub: ControlHub, worker: Worker) -> AsyncIterator[bytes]:
    try:
        async with hub.attached(worker) as control:
            async for message in _messages(control):
                yield message
    except Conflict:
        return  # replaced since the check above; the next connect is told so


async def _messages(control: ControlStream) -> AsyncIterator[bytes]:
    async for message in control.messages():
        yield orjson.dumps(message) + b"\n"


@router.post("/claims")
async def claim(request: Request) -> Response:
    """Gives the worker up to `slots` jobs of a dispatch; a repeated key is answered alike."""
    worker = _worker(request)
    body = await _read(request, ClaimBody)
    async with resources_of(request).system_pool.acquire() as conn:
        dispatch = await workers.find_dispatch(conn, body.dispatch_id)
        if dispatch is None:
            return _json({"jobs": []})
        try:
            _require_class(worker, dispatch)
        except Forbidden as error:
            await _note(request, conn, _Refusal(worker, worker.require_incarnation(), error.detail))
            raise
        if worker.status is workers.WorkerStatus.OFFLINE:
            raise Unavailable("open the control stream first", code="worker.offline")
        async with conn.transaction():
            asked = _claim_request(worker, body)
            answer = await claims.claim(conn, asked)
            answer = await with_secrets(conn, resources_of(request).keyring, asked, answer)
    return _json(
        {
            "tool_id": answer.tool_id,
            "category": answer.category,
            "run_id": answer.run_id,
            "options": answer.options,
            "connector": answer.connector,
            "jobs": [{"job_id": j.job_id, "attempt": j.attempt, "spec": j.spec} for j in answer.jobs],
            "secrets": answer.secrets,
        }
    )


def _claim_request(worker: Worker, body: ClaimBody) -> claims.ClaimRequest:
    return claims.ClaimRequest(
        dispatch_id=body.dispatch_id,
        claim_key=body.claim_key,
        worker_id=worker.worker_id,
        incarnation=worker.require_incarnation(),
        slots=body.slots,
    )


@router.post("/uploads")
async def upload(request: Request) -> Response:
    """Gives a place in the bucket for one result, for a quarter of an hour from now."""
    worker, resources = _worker(request), resources_of(request)
    body = await _read(request, UploadBody)
    async with resources.system_pool.acquire() as conn:
        dispatch = await workers.find_dispatch(conn, body.dispatch_id)
    if dispatch is None:
        raise NotFound("no such dispatch", code="dispatch.not_found")
    _require_class(worker, dispatch)
    wanted = uploads.Wanted(
        worker.worker_id, dispatch.workspace_id, dispatch.dispatch_id, body.size, bytes.fromhex(body.sha256)
    )
    fresh = object_key(dispatch.workspace_id, dispatch.dispatch_id)
    async with resources.system_pool.acquire() as conn, conn.transaction():
        key = await uploads.reserve(conn, wanted, fresh, UPLOAD_EXPIRY)
    return _json({"url": resources.storage.upload_url(key, body.size), "key": key})


@router.post("/results")
async def results(request: Request) -> Response:
    """Stages outcomes at their attempts; a repeated delivery is answered like the first."""
    worker = _worker(request)
    body = await _read(request, ResultsBody)
    inline = _inline(body, resources_of(request).settings.stage_inline_bytes)
    resources = resources_of(request)
    async with resources.system_pool.acquire() as conn:
        dispatch = await workers.find_dispatch(conn, body.dispatch_id)
    if dispatch is None:  # the run was deleted, and its jobs with it
        return _json({"accepted": [], "stale": [member.job_id for member in body.members]})
    delivery = staging.Delivery(
        worker_id=worker.worker_id,
        incarnation=body.incarnation,
        dispatch_id=body.dispatch_id,
        members=[member.staged for member in body.members],
        body=inline,
        object_ref=_object_ref(body, dispatch),
    )
    if delivery.object_ref is not None:
        async with resources.system_pool.acquire() as conn:
            await _hold(conn, worker, delivery.object_ref)  # before anything is done to the object
        await _require_object(resources, delivery.object_ref)
    async with resources.system_pool.acquire() as conn, conn.transaction():
        staged = await _stage(conn, worker, delivery)
    return _json({"accepted": staged.accepted, "stale": staged.stale})


async def _stage(conn: Connection, worker: Worker, delivery: staging.Delivery) -> staging.Staged:
    if delivery.object_ref is None:
        return await staging.stage(conn, delivery)
    await _hold(conn, worker, delivery.object_ref)
    staged = await staging.stage(conn, delivery)
    if staged.accepted:
        await uploads.note_staged(conn, delivery.object_ref)
    return staged


async def _require_object(resources: Resources, ref: staging.ObjectRef) -> None:
    """Passes if the object is there and as large as was announced; a larger one is removed at once."""
    size_bytes = await resources.storage.size_of(ref.key)
    if size_bytes is None:
        raise Unavailable("the object is not there: upload it again", code="result.object_missing")
    if size_bytes != ref.size_bytes:
        await resources.storage.discard([ref.key])
        raise Invalid("the object is not as large as was announced", code="result.object")


async def _hold(conn: Connection, worker: Worker, ref: staging.ObjectRef) -> None:
    if not await uploads.hold(conn, worker.worker_id, ref):
        raise Invalid("the object is not the one that was announced", code="result.object")


def _inline(body: ResultsBody, most_bytes: int) -> bytes | None:
    if body.body is None:
        return None
    try:
        inline = b64decode(body.body, validate=True)
    except binascii.Error as error:
        raise Invalid("the body is not base64", code="result.body") from error
    if len(inline) > most_bytes:
        raise TooLarge(f"results over {most_bytes} bytes go through the bucket", code="result.inline")
    return inline


def _object_ref(body: ResultsBody, dispatch: DispatchContext) -> staging.ObjectRef | None:
    if body.category != dispatch.category:
        raise Invalid(f"the dispatch is about {dispatch.category}", code="result.category")
    if body.object is None:
        return None
    # Any other key may be a result of somebody else, which would be deleted after the merge.
    if not is_object_key(body.object.key, dispatch.workspace_id, dispatch.dispatch_id):
        raise Invalid("the object does not belong to the dispatch", code="result.object")
    return staging.ObjectRef(body.object.key, body.object.size, bytes.fromhex(body.object.sha256))


@router.post("/tails")
async def tail(request: Request) -> Response:
    """Passes lines of a running job on to whoever looks at it now; nothing of them is kept."""
    worker = _worker(request)
    body = await _read(request, TailBody)
    async with resources_of(request).system_pool.acquire() as conn:
        of = tails.OfAttempt(body.job_id, body.attempt, worker.worker_id, worker.require_incarnation())
        await tails.publish(conn, of, body.first, body.shown)
    return _json({})


@router.post("/leave")
async def leave(request: Request) -> Response:
    """Ends this life of the worker, which has given back what it could not finish."""
    worker = _worker(request)
    async with resources_of(request).system_pool.acquire() as conn, conn.transaction():
        await workers.leave(conn, worker)
    return _json({})


def _require_class(worker: Worker, dispatch: DispatchContext) -> None:
    if dispatch.task_queue not in worker.queues.values():
        raise Forbidden("the dispatch is not for this worker's queues", code="worker.queue")


def _worker(request: Request) -> Worker:
    """The worker that calls, in its current life: all that is to be known before its body is read."""
    worker = worker_of(request)
    given = request.headers.get(names.WORKER_INCARNATION_HEADER, "")
    if given != str(worker.require_incarnation()):
        raise workers.stale_incarnation()
    return worker


async def _read(request: Request, model: type[BodyT]) -> BodyT:
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**fault, "loc": ("body", *fault["loc"])} for fault in faults]
        ) from error


def _json(content: Mapping[str, object]) -> Response:
    # `str` is for the driver's own UUID class, which orjson does not take for one.
    return Response(orjson.dumps(content, default=str), media_type="application/json")
