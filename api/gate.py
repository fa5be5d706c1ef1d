"""Who asks is settled before anything that is sent along is looked at: by headers alone, no byte of a body.

FastAPI reads and parses a body before it solves any dependency, so a dependency is too late: a caller without
a credential would have its body read, and be told what is wrong with it.
"""

from typing import Final, TypeAlias

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.resources import Resources
from runlane import names
from runlane.db import credentials, keys, workers
from runlane.db.keys import Principal
from runlane.db.pool import Connection
from runlane.db.workers import Presented, Worker
from runlane.errors import Unauthenticated

ROOT: Final = "/v1/"
"""Below it every path is closed, those that do not exist included."""

WORKER_ROOT: Final = f"{ROOT}worker/"
OPENAPI: Final = f"{ROOT}openapi.json"
"""The one open path below the root."""

_JOIN: Final = f"{WORKER_ROOT}join"

Caller: TypeAlias = Principal | Worker
"""The owner of a key, or a scan worker."""


class Gate:
    """Lets a request in if its credential is valid, and keeps for the route whose it is.

    Errors are raised: what turns them into answers stands around it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ROOT) and scope["path"] != OPENAPI:
            presented = _bearer(Headers(scope=scope))
            resources: Resources = scope["app"].state.resources
            await resources.schema.require()
            caller = await _authenticate(scope["path"], presented, resources)
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def caller_of(request: Request) -> Caller:
    """Whoever the gate has let in.

    Raises:
        Unauthenticated: nobody; the path is an open one.
    """
    caller: Caller | None = request.scope.get("state", {}).get("caller")
    if caller is None:
        raise _no_key()
    return caller


def principal_of(request: Request) -> Principal:
    """The owner of the request's key.

    Raises:
        Unauthenticated: `key.invalid`, there is none.
    """
    caller = caller_of(request)
    if not isinstance(caller, Principal):
        raise _no_key()
    return caller


def worker_of(request: Request) -> Worker:
    """The scan worker whose token the request has.

    Raises:
        Unauthenticated: `worker.token`, there is none.
    """
    caller = caller_of(request)
    if not isinstance(caller, Worker):
        raise _no_token()
    return caller


async def _authenticate(path: str, presented: str, resources: Resources) -> Caller:
    is_of_worker = path.startswith(WORKER_ROOT)
    if not presented:
        raise _no_token() if is_of_worker else _no_key()
    is_enrolment = path == _JOIN and not presented.startswith(workers.TOKEN_START)
    async with resources.system_pool.acquire() as conn:
        if is_of_worker and not is_enrolment:
            return await _worker(conn, presented, path, resources.pepper)
        return await keys.authenticate(conn, presented, resources.pepper)


async def _worker(conn: Connection, presented: str, path: str, pepper: bytes) -> Worker:
    worker = await workers.authenticate(conn, presented, pepper)
    if path == _JOIN:
        credentials.require_newest(worker)
    if worker.presented is Presented.NEXT:
        async with conn.transaction():
            await credentials.replace_token(conn, worker, presented, pepper)
    return worker


def _bearer(headers: Headers) -> str:
    scheme, _, presented = headers.get("authorization", "").partition(" ")
    return presented if scheme.lower() == "bearer" else ""


def _no_key() -> Unauthenticated:
    return Unauthenticated("send a key: Authorization: Bearer rl_…", code="key.invalid")


def _no_token() -> Unauthenticated:
    return Unauthenticated("send the token: Authorization: Bearer …", code=names.WORKER_TOKEN_CODE)
