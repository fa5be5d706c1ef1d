"""The command relay: tells Temporal what rows decided (starts, nudges), at full speed.

Commands are taken `FOR UPDATE SKIP LOCKED`, so any number of relays share the work; a command is marked done
in the transaction that holds it, so a relay that dies leaves it to the next. Telling Temporal twice is
harmless: a start finds the running workflow, a nudge is only a reason to look.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from runlane import names
from runlane.db.nudges import COMMANDS_CHANNEL
from runlane.db.pool import Connection, Pool, Record, open_pool
from runlane.settings import Settings
from workflows.dispatching import Limits
from workflows.starting import RunToStart, start_run_workflow

log = structlog.get_logger(__name__)

BATCH = 100
POLL_S = 1.0
MAX_BACKOFF_S = 60.0
CALL_TIMEOUT_S = 10.0

_TAKE = """
SELECT c.id, c.kind, c.workflow_id, c.tries, h.id AS run_id, h.workspace_id, h.name, h.kind AS run_kind,
       h.closed_at IS NOT NULL AS is_closed
FROM commands c
LEFT JOIN job_histories h ON c.kind = 'start_run' AND h.workspace_id = c.workspace_id
  AND 'run/' || h.id = c.workflow_id AND h.id = split_part(c.workflow_id, '/', 2)::uuid
WHERE c.done_at IS NULL AND c.due_at <= clock_timestamp()
ORDER BY c.due_at, c.id
LIMIT $1
FOR UPDATE OF c SKIP LOCKED
"""

_DONE = "UPDATE commands SET done_at = clock_timestamp(), error = NULL WHERE id = ANY($1::bigint[])"

_AGAIN = """
UPDATE commands
SET tries = tries + 1, error = u.error,
    due_at = clock_timestamp() + make_interval(secs => least($3, 0.5 * 2 ^ least(tries, 10)))
FROM unnest($1::bigint[], $2::text[]) AS u (id, error)
WHERE commands.id = u.id
"""


@dataclass(frozen=True, slots=True)
class Relayed:
    """What one round did."""

    done: int
    failed: int


async def run_command_relay(settings: Settings, stop: asyncio.Event) -> None:
    """Relays commands until `stop` is set; reconnects to both servers with the caller's supervision.

    Raises:
        OSError, RPCError, asyncpg.PostgresError: a server went away; the supervisor starts it again.
    """
    client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
    pool = await open_pool(settings.database_system_url, size=3, name="runlane-commands")
    try:
        await _relay(pool, client, Limits(**settings.dispatch_limits), stop)
    finally:
        await pool.close()


async def _relay(pool: Pool, client: Client, limits: Limits, stop: asyncio.Event) -> None:
    wake, deaf = asyncio.Event(), asyncio.Event()

    def on_notify(*_: object) -> None:
        wake.set()

    def on_end(_conn: object) -> None:
        deaf.set()
        wake.set()

    async with pool.acquire() as listener:
        listener.add_termination_listener(on_end)
        await listener.add_listener(COMMANDS_CHANNEL, on_notify)
        try:
            while not stop.is_set():
                wake.clear()
                relayed = await relay_once(pool, client, limits)
                if deaf.is_set():
                    # The pool mends itself unseen: without this every later command would wait for a poll.
                    raise ConnectionResetError("the connection that hears of commands is gone")
                if relayed.done == 0:
                    await _wait(wake, stop)
        finally:
            if not deaf.is_set():
                listener.remove_termination_listener(on_end)
                await listener.remove_listener(COMMANDS_CHANNEL, on_notify)


async def _wait(wake: asyncio.Event, stop: asyncio.Event) -> None:
    waiters = [asyncio.ensure_future(wake.wait()), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(waiters, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()


async def relay_once(pool: Pool, client: Client, limits: Limits) -> Relayed:
    """Relays up to 100 due commands and marks each done or due again later."""
    async with pool.acquire() as conn, conn.transaction():
        rows = await conn.fetch(_TAKE, BATCH)
        errors = await asyncio.gather(*(_tell(client, row, limits) for row in rows))
        failed = {row["id"]: error for row, error in zip(rows, errors, strict=True) if error is not None}
        await _mark(conn, rows, failed)
    return Relayed(len(rows) - len(failed), len(failed))


async def _mark(conn: Connection, rows: list[Record], failed: Mapping[int, str]) -> None:
    done = [row["id"] for row in rows if row["id"] not in failed]
    if done:
        await conn.execute(_DONE, done)
    if failed:
        await conn.execute(_AGAIN, list(failed), list(failed.values()), MAX_BACKOFF_S)


async def _tell(client: Client, row: Record, limits: Limits) -> str | None:
    """Tells Temporal one command; answers the error if it has to be told again."""
    try:
        if row["kind"] == "start_run":
            if row["run_id"] is not None and not row["is_closed"]:
                run = RunToStart(row["run_id"], row["workspace_id"], row["name"], row["run_kind"])
                await asyncio.wait_for(start_run_workflow(client, run, limits), CALL_TIMEOUT_S)
        else:
            handle = client.get_workflow_handle(row["workflow_id"])
            await asyncio.wait_for(handle.signal(names.NUDGE_SIGNAL), CALL_TIMEOUT_S)
    except TimeoutError:
        return "Temporal did not answer in time"
    except RPCError as error:
        if row["kind"] == "nudge" and error.status is RPCStatusCode.NOT_FOUND:
            return None
        log.warning("command_not_relayed", command=row["id"], kind=row["kind"], error=str(error)[:200])
        return str(error)[:500]
    return None
