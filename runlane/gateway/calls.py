"""One call through the gateway: whose it is, what of it goes on to Temporal, and what comes back."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

import grpc
import structlog
from grpc import aio

from runlane import names
from runlane.db.polls import Polled
from runlane.db.roster import Standing
from runlane.events import scrub_text
from runlane.gateway.caller import Caller
from runlane.gateway.faults import Fault, denied, no_such_task, unauthenticated, unavailable
from runlane.gateway.noting import PollNotes
from runlane.gateway.roster import Poll, Roster, fault_of
from runlane.gateway.rules import RULES, Kind, Rule, polled_queue
from runlane.gateway.seal import Seal

log = structlog.get_logger(__name__)

POLL_S: Final = 75.0
"""Longest poll; an SDK asks for 70 s."""

CALL_S: Final = 30.0
ANSWER_BEFORE_S: Final = 1.0
"""A poll that is held is answered with nothing so long before its caller gives up, as Temporal does."""

FACT_S: Final = 60.0
"""How long an answer that is the same for all is remembered."""

_TOLD_MOST: Final = 1000
_CLIENT_KEYS: Final = ("client-name", "client-version")

Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"


@dataclass(frozen=True, slots=True)
class _Fact:
    answer: bytes
    learnt_at_s: float


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that is let through, on its way."""

    method: str
    rule: Rule
    caller: Caller
    standing: Standing
    request: bytes
    metadata: tuple[tuple[str, str], ...]
    time_s: float

    @property
    def polled(self) -> Polled | None:
        """Whose work it asks for; None if for none."""
        queue, worker = polled_queue(self.method, self.request), self.standing.worker
        toolset = next((toolset for toolset, each in worker.queues.items() if each == queue), None)
        return Polled(worker.worker_id, self.caller.seal.incarnation, toolset) if toolset else None


@dataclass(frozen=True, slots=True)
class Workers:
    """What the gateway knows of workers, and what it writes down of them."""

    roster: Roster
    notes: PollNotes


class Gateway(grpc.GenericRpcHandler):
    """Every call of every method comes here, as bytes."""

    def __init__(self, upstream: aio.Channel, workers: Workers, key: bytes, namespace: str) -> None:
        self._upstream = upstream
        self._roster = workers.roster
        self._notes = workers.notes
        self._key = key
        self._namespace = namespace
        self._facts: dict[str, _Fact] = {}
        self._told: dict[tuple[object, ...], None] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        """The handler of a method, whatever it is."""
        method = handler_call_details.method

        async def handle(request: bytes, context: Context) -> bytes:
            return await self._answer(method, request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    async def _answer(self, method: str, request: bytes, context: Context) -> bytes:
        try:
            call = await self._let_through(method, request, context)
            return call.rule.outbound(await self._forward(call), call.caller)
        except Fault as fault:
            await context.abort(fault.code, scrub_text(fault.detail))
        except aio.AioRpcError as error:
            said = scrub_text(error.details() or "")
            await context.abort(error.code(), said, tuple(error.trailing_metadata() or ()))

    async def _let_through(self, method: str, request: bytes, context: Context) -> _Call:
        sent = dict(context.invocation_metadata() or ())
        incarnation = _uuid(str(sent.get(names.GATEWAY_INCARNATION_KEY)))
        standing = await self._roster.find(_bearer(sent.get("authorization")), incarnation)
        try:
            rule = RULES.get(method)
            if rule is None:
                raise denied("not a method of scan workers")
            caller = self._caller(standing, rule, incarnation)
            inside = rule.inbound(request, caller)
        except Fault as fault:
            self._tell(standing, method, fault)
            raise
        return _Call(method, rule, caller, standing, inside, self._metadata(sent), _time_s(rule, context))

    def _caller(self, standing: Standing, rule: Rule, incarnation: UUID | None) -> Caller:
        worker = standing.worker
        if incarnation is None:
            raise unauthenticated("say which life of the worker calls")
        if fault := fault_of(standing, incarnation):
            # A tool of an earlier life must die: an SDK ends an activity only for a task that is not there.
            raise no_such_task() if rule.kind is Kind.TASK and not standing.is_revoked else fault
        seal = Seal(self._key, worker.worker_id, incarnation)
        return Caller(seal, self._namespace, frozenset(worker.queues.values()))

    async def _forward(self, call: _Call) -> bytes:
        match call.rule.kind:
            case Kind.POLL:
                polling = self._roster.polling(call.standing, call.caller.seal.incarnation)
                with polling as poll, self._notes.holding(call.polled):
                    return await self._poll(call, poll)
            case Kind.FACT:
                return await self._fact(call)
            case Kind.TASK | Kind.REPORT:
                return await self._ask(call, call.time_s)

    async def _poll(self, call: _Call, poll: Poll) -> bytes:
        """Waits for a task. Not before the worker is there, and no longer than it is."""
        loop = asyncio.get_running_loop()
        ends_at_s = loop.time() + call.time_s
        try:
            async with asyncio.timeout_at(ends_at_s - ANSWER_BEFORE_S):
                await self._roster.until_present(call.standing.worker.worker_id, poll)
        except TimeoutError:
            return b""
        poll.waiting = loop.create_task(self._ask(call, ends_at_s - loop.time()))
        try:
            return await poll.waiting
        except asyncio.CancelledError:
            if poll.fault is None:
                raise  # the worker has gone away
            raise poll.fault from None
        finally:
            poll.waiting.cancel()

    async def _fact(self, call: _Call) -> bytes:
        now_s = asyncio.get_running_loop().time()
        fact = self._facts.get(call.method)
        if fact is None or now_s - fact.learnt_at_s > FACT_S:
            fact = _Fact(await self._ask(call, call.time_s), now_s)
            self._facts[call.method] = fact
        return fact.answer

    async def _ask(self, call: _Call, time_s: float) -> bytes:
        method: aio.UnaryUnaryMultiCallable[bytes, bytes] = self._upstream.unary_unary(call.method)
        try:
            return await method(call.request, timeout=time_s, metadata=call.metadata)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The server ended the call, which looks as if somebody here had.
            raise unavailable("the server ended the call") from None

    def _metadata(self, sent: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        """Never the credential."""
        said = tuple((key, str(sent[key])) for key in _CLIENT_KEYS if key in sent)
        return (*said, ("temporal-namespace", self._namespace))

    def _tell(self, standing: Standing, method: str, fault: Fault) -> None:
        """Logs a refusal, the first of its kind: an SDK, and an attacker, tries again and again."""
        kind = (standing.worker.worker_id, method if method in RULES else None, fault.code)
        if kind in self._told:
            return
        if len(self._told) >= _TOLD_MOST:
            self._told.pop(next(iter(self._told)))
        self._told[kind] = None
        log.warning(
            "call_refused",
            worker_id=str(standing.worker.worker_id),
            method=method[-80:],
            code=fault.code.name,
            reason=fault.detail,
        )


def _bearer(header: object) -> str:
    scheme, _, token = str(header or "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _time_s(rule: Rule, context: Context) -> float:
    most_s = POLL_S if rule.kind is Kind.POLL else CALL_S
    remaining: float | None = context.time_remaining()
    return most_s if remaining is None else min(remaining, most_s)
