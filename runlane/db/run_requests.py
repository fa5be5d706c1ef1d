"""A request to start a run, done once per Idempotency-Key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import idempotency, outbox, pauses
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.commands import write_start
from runlane.db.definitions import find_definition
from runlane.db.idempotency import Answer, IdempotentRequest
from runlane.db.pool import Connection
from runlane.db.selections import Selection, find_groups, selected
from runlane.db.starting import StartRun, start_run
from runlane.errors import Conflict, NotFound
from runlane.jobs import RUNS, Priority, RunStatus

ROUTE: Final = "POST /v1/runs"
ACCEPTED: Final = 202


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a caller asks to run. `definition` is the name of a saved or built-in one, or a definition."""

    workspace_id: UUID
    definition: str | Mapping[str, object]
    targets: Sequence[UUID]
    name: str | None
    priority: Priority
    config: Mapping[str, Mapping[str, object]]
    created_by: str
    groups: Sequence[str] = ()
    """By name or id."""
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer, and the run that was written for it; None when the answer was given before."""

    answer: Answer
    written: StartRun | None


async def accept_run(conn: Connection, request: RunRequest, key: IdempotentRequest | None) -> Accepted:
    """Writes a run in the transaction of the caller, or repeats the answer of the same request.

    Raises:
        Invalid: `definition.*`, `run.no_target`, `run.too_large`, `idempotency.body_mismatch`.
        NotFound: `group.not_found`, `target.not_found`, in particular a target of another workspace.
        InFlight: the same request is being worked on.
    """
    if key is not None and (answer := await idempotency.begin(conn, key)):
        return Accepted(answer, written=None)
    start = await start_of(conn, request)
    started = await start_run(conn, start)
    answer = Answer(ACCEPTED, {"run_id": str(started.run_id), "status": str(RunStatus.ACCEPTED)})
    if key is not None:
        await idempotency.finish(conn, key, answer)
    return Accepted(answer, written=start)


async def start_of(conn: Connection, request: RunRequest) -> StartRun:
    """What a request asks to start: the definition is found, and the options are laid over it.

    Raises:
        Invalid: `definition.*`.
        NotFound: `group.not_found`.
    """
    groups = await find_groups(conn, request.workspace_id, request.groups)
    found = await find_definition(conn, request.workspace_id, request.definition)
    definition = found.definition.with_config(request.config)
    return StartRun(
        workspace_id=request.workspace_id,
        definition=definition,
        target_ids=request.targets,
        name=request.name or definition.name,
        priority=request.priority,
        created_by=request.created_by,
        definition_id=found.definition_id,
        definition_version=found.version,
        source=selected(Selection(request.targets, groups, request.tags)),
    )


async def resume_run(conn: Connection, workspace_id: UUID, run_id: UUID, act: Act) -> RunStatus:
    """Lifts the pause of an open run and writes the command that starts its workflow; returns its status.

    Harmless when it is not paused and its workflow runs: the start is then a no-op.

    Raises:
        NotFound: `run.not_found`.
        Conflict: `run.closed`.
    """
    status = await conn.fetchval(
        "SELECT status FROM job_histories WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE",
        workspace_id,
        run_id,
    )
    if status is None:
        raise NotFound("no such run", code="run.not_found")
    if status in RUNS.terminal:
        raise Conflict(f"the run is {status} already", code="run.closed")
    await pauses.lift_of_run(conn, workspace_id, run_id, act)
    command_id = await write_start(conn, workspace_id, run_id)
    subject = names.run_subject(run_id)
    deed = Deed(Action.RUN_RESUME, workspace_id, subject, ordinal=str(command_id), run_id=run_id)
    await outbox.insert(conn, [acted(act, deed)])
    return RunStatus(status)
