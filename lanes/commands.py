"""The command relay: tells Temporal what rows decided (starts, nudges, schedules), at full speed.

Commands are taken `FOR UPDATE SKIP LOCKED`, so any number of relays share the work; a command is marked done
in the transaction that holds it, so a relay that dies leaves it to the next. Telling Temporal twice is
harmless: a start finds the running workflow, a nudge is only a reason to look, a schedule is told as it is.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never
from uuid import UUID

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from runlane import names
from runlane.backoff import pause
from runlane.db import commands, schedules, triggers
from runlane.db.commands import Command, CommandKind
from runlane.db.notices import listening
from runlane.db.pool import Pool, open_pool
from runlane.errors import Conflict, Refused
from runlane.events import scrub_text
from runlane.settings import Settings
from workflows.delivering import start_deliveries
from workflows.dispatching import Limits
from workflows.schedules import start_fire, tell_schedule
from workflows.starting import RunToStart, start_run_workflow

log = structlog.get_logger(__name__)

BATCH: Final = 100
"""Commands of one transaction."""

POLL: Final = timedelta(seconds=1)
"""How often due commands are looked for when nobody calls."""

MAX_BACKOFF_S: Final = 60.0
"""Longest time until a command is told again."""

CALL_TIMEOUT_S: Final = 10.0

TOLD: Final = (
    CommandKind.START_RUN,
    CommandKind.NUDGE,
    CommandKind.SCHEDULE,
    CommandKind.FIRE,
    CommandKind.DELIVER,
)

HELD: Final = "another relay tells of this schedule"


@dataclass(frozen=True, slots=True)
class Relayed:
    """What one round did."""

    done: int
    failed: int


async def run_command_relay(settings: Settings, stop: asyncio.Event) -> None:
    """Relays commands until `stop` is set; reconnects to both servers with the caller's supervision.

    Raises:
        OSError, asyncpg.PostgresError: a server is away; the supervisor starts it again.
    """
    client = await _connect(settings)
    pool = await open_pool(settings.database_system_url, size=3, name="runlane-commands")
    try:
        await _relay(pool, client, Limits(**settings.dispatch_limits), stop)
    finally:
        await pool.close()


async def _connect(settings: Settings) -> Client:
    try:
        return await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
    except RuntimeError as error:  # all that the client says when no server answers
        raise ConnectionError(f"Temporal does not answer: {str(error)[:200]}") from error


async def _relay(pool: Pool, client: Client, limits: Limits, stop: asyncio.Event) -> None:
    wake, deaf = asyncio.Event(), asyncio.Event()

    def hear(notice: str | None) -> None:
        if notice is None:
            deaf.set()
        wake.set()

    async with pool.acquire() as listener, listening(listener, names.COMMANDS_CHANNEL, hear):
        while not stop.is_set():
            wake.clear()
            relayed = await relay_once(pool, client, limits)
            if deaf.is_set():
                # The pool mends itself unseen: without this every later command would wait for a poll.
                raise ConnectionResetError("the connection that hears of commands is gone")
            if relayed.done == 0:
                await pause(POLL, wake, stop)


async def relay_once(pool: Pool, client: Client, limits: Limits) -> Relayed:
    """Relays up to 100 due commands and marks each done or due again later."""
    triggered = await _start_triggered(pool)
    async with pool.acquire() as conn, conn.transaction():
        due = await commands.take(conn, BATCH, TOLD)
        plans = await schedules.plans_of(conn, [each.schedule_id for each in due if each.schedule_id])
        telling = _Telling(client, limits, plans)
        errors = await asyncio.gather(*(_tell(telling, command) for command in due))
        failed = {
            command.command_id: error for command, error in zip(due, errors, strict=True) if error is not None
        }
        await commands.mark_done(conn, [each.command_id for each in due if each.command_id not in failed])
        await commands.put_off(conn, failed, MAX_BACKOFF_S)
    return Relayed(len(due) - len(failed) + triggered.done, len(failed) + triggered.failed)


async def _start_triggered(pool: Pool) -> Relayed:
    """Starts the runs that gathered events ask for; one without room among the open runs is tried again.

    In a transaction of its own: nobody must wait until Temporal has answered.
    """
    refused: dict[int, str] = {}
    async with pool.acquire() as conn:
        await triggers.call_gathered(conn)
    async with pool.acquire() as conn, conn.transaction():
        due = await commands.take(conn, BATCH, (CommandKind.TRIGGER,))
        for command in due:
            try:
                async with conn.transaction():
                    await triggers.start(conn, command.payload)
            except Conflict as error:
                refused[command.command_id] = error.detail
            except Refused as error:
                log.warning("trigger_refused", command=command.command_id, code=error.code)
                await triggers.give_up(conn, command.payload, error)
        await commands.mark_done(conn, [each.command_id for each in due if each.command_id not in refused])
        await commands.put_off(conn, refused, MAX_BACKOFF_S)
    return Relayed(len(due) - len(refused), len(refused))


@dataclass(frozen=True, slots=True)
class _Telling:
    """What a round needs to tell Temporal."""

    client: Client
    limits: Limits
    plans: Mapping[UUID, schedules.Plan]


async def _tell(telling: _Telling, command: Command) -> str | None:
    """Tells Temporal one command; answers the error if it has to be told again."""
    if command.schedule_id is not None and command.schedule_id not in telling.plans:
        return HELD
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await _call(telling, command)
    except TimeoutError:
        return "Temporal did not answer in time"
    except RPCError as error:
        if command.kind is CommandKind.NUDGE and error.status is RPCStatusCode.NOT_FOUND:
            return None
        log.warning(
            "command_not_relayed", command=command.command_id, kind=command.kind, error=str(error)[:200]
        )
        return scrub_text(str(error))[:500]
    return None


async def _call(telling: _Telling, command: Command) -> None:
    client = telling.client
    match command.kind:
        case CommandKind.START_RUN:
            if (run := command.run) is not None:
                to_start = RunToStart(run.run_id, run.workspace_id, run.name, run.kind)
                await start_run_workflow(client, to_start, telling.limits)
        case CommandKind.NUDGE:
            await client.get_workflow_handle(command.workflow_id).signal(names.NUDGE_SIGNAL)
        case CommandKind.SCHEDULE:
            if command.schedule_id is not None:
                await tell_schedule(client, telling.plans[command.schedule_id])
        case CommandKind.FIRE:
            await start_fire(client, command.workflow_id, command.payload)
        case CommandKind.DELIVER:
            await start_deliveries(client, command.workflow_id)
        case CommandKind.TRIGGER:
            pass  # rows only, and these are written
        case _:
            assert_never(command.kind)
