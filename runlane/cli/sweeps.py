"""`runlane sweep …`. These commands speak to Temporal: whoever has its address may have sweeps begin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, note, print_json, print_rows
from runlane.cli.profile import state_dir

if TYPE_CHECKING:
    from temporalio.client import Client

    from runlane.sweeps import Sweep
    from workflows.sweeps import SweepResult

app = typer.Typer(no_args_is_help=True, help="Sweeps: what the system does for itself, and when.")

LEAVE_S = 0.2
"""Pause before the process ends."""

SWEEP_COLUMNS = (
    Column("SWEEP", "name"), Column("EVERY", "every"), Column("PAUSED", "is_paused"),
    Column("LAST", "last_at"), Column("NEXT", "next_at"), Column("WHAT", "what"),
)  # fmt: skip
PART_COLUMNS = (
    Column("PART", "part"), Column("EXAMINED", "examined"), Column("CHANGED", "changed"),
    Column("FAILED", "failed"),
)  # fmt: skip


@app.command("list")
def index(as_json: JsonFlag = False) -> None:
    """List the sweeps with their schedules, and what the newest of each did."""
    rows = asyncio.run(_list())
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, SWEEP_COLUMNS)


@app.command("run")
def run(name: Annotated[str, typer.Argument(help="As in the list.")], as_json: JsonFlag = False) -> None:
    """Have a sweep begin now, also while it is paused; wait for it and say what it did."""
    parts = asyncio.run(_run(name))
    if as_json:
        print_json({"name": name, "parts": parts})
    else:
        print_rows(parts, PART_COLUMNS)


async def _list() -> list[dict[str, object]]:
    from runlane.sweeps import SWEEPS

    async with _temporal() as client:
        return [await _row(client, sweep) for sweep in SWEEPS.values()]


async def _row(client: "Client", sweep: "Sweep") -> dict[str, object]:
    from workflows.sweep_schedules import newest_result, read_schedule

    state = await read_schedule(client, sweep)
    result = await newest_result(client, state) if state.last else None
    return {
        "name": sweep.name,
        "what": sweep.sentence,
        "every": _for_people(int(sweep.every.total_seconds())),
        "every_s": int(sweep.every.total_seconds()),
        "is_there": state.is_there,
        "is_paused": state.is_paused,
        "note": state.note,
        "workflow_id": state.last,
        "last_at": state.last_at.isoformat() if state.last_at else None,
        "next_at": state.next_at.isoformat() if state.next_at else None,
        "parts": _parts(result) if result is not None else None,
    }


async def _run(name: str) -> list[dict[str, object]]:
    from temporalio.client import WorkflowFailureError
    from temporalio.service import RPCError, RPCStatusCode

    from runlane.sweeps import SWEEPS
    from workflows.sweep_schedules import result_of, run_now

    if name not in SWEEPS:
        raise CommandError(f"no sweep {name}", ExitCode.NOT_FOUND, hint="runlane sweep list")
    async with _temporal() as client:
        try:
            workflow_id = await run_now(client, SWEEPS[name])
            note(f"{workflow_id} has begun")
            return _parts(await result_of(client, workflow_id))
        except WorkflowFailureError as error:
            raise CommandError(f"not all was done: {error.cause}", ExitCode.RUN_FAILED) from error
        except TimeoutError as error:
            raise CommandError("the sweep has not begun", ExitCode.TIMED_OUT) from error
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            message = f"the sweep {name} has no schedule yet"
            raise CommandError(message, ExitCode.NOT_FOUND, hint="runlane worker core") from error


def _parts(result: "SweepResult") -> list[dict[str, object]]:
    from runlane.sweeps import Part

    order = list(Part)  # the name of a part says nothing of its place, and an answer has them by name
    return [{"part": part, **asdict(result.parts[part])} for part in order if part in result.parts]


def _for_people(seconds: int) -> str:
    sizes = ((86_400, "d"), (3_600, "h"), (60, "min"))
    return next(f"{seconds // size} {unit}" for size, unit in sizes if seconds >= size)


@asynccontextmanager
async def _temporal() -> "AsyncIterator[Client]":
    from temporalio.client import Client
    from temporalio.service import RPCError

    from runlane.settings import Settings
    from runlane.stack.urls import adopt_running_stack

    adopt_running_stack(state_dir())
    settings = Settings.load()
    if not settings.temporal_address:
        message = "no Temporal: RUNLANE_TEMPORAL_ADDRESS is not set and no stack runs here"
        raise CommandError(message, ExitCode.UNREACHABLE, hint="runlane up")
    try:
        yield await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
    except (RPCError, RuntimeError) as error:
        raise CommandError(f"Temporal: {error}", ExitCode.UNREACHABLE) from error
    finally:
        # A thread of the SDK that has just handed over an answer must be out of the interpreter when it ends,
        # or the process is aborted; nothing tells when it is.
        await asyncio.sleep(LEAVE_S)
