"""`runlane job …`."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.operations import finished, print_operation
from runlane.cli.options import JsonFlag, Limit, PriorityName, Reason, Sort
from runlane.cli.output import Column, note, print_done, print_fields, print_json, print_made, print_rows
from runlane.cli.profile import open_client

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

app = typer.Typer(no_args_is_help=True, help="Jobs: what runs did, one by one.")

PATH = "/v1/jobs"
COLUMNS = (
    Column("ID", "id"), Column("STEP", "step_id"), Column("TOOL", "tool_id"), Column("STATUS", "status"),
    Column("ATTEMPT", "attempt"), Column("FAILURES", "failures"), Column("REASON", "reason"),
    Column("CREATED", "created_at"), Column("COMPLETED", "completed_at"),
)  # fmt: skip
ATTEMPT_COLUMNS = (
    Column("ATTEMPT", "attempt"), Column("WORKER", "worker_id"), Column("CLAIMED", "claimed_at"),
    Column("ENDED", "ended_at"), Column("OUTCOME", "outcome"), Column("CHARGED", "charged"),
)  # fmt: skip
ERROR_COLUMNS = (
    Column("ATTEMPT", "attempt"), Column("OUTCOME", "outcome"), Column("TIMES", "times"),
    Column("MESSAGE", "message"),
)  # fmt: skip


@app.command("list")
def index(
    run: Annotated[
        str | None, typer.Option("--run", help="Only of this run: id, the end of it, or @last.")
    ] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only of this step.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Only of this tool.")] = None,
    status: Annotated[list[str] | None, typer.Option("--status", help="May be repeated.")] = None,
    limit: Limit = 50,
    sort: Sort = None,
    as_json: JsonFlag = False,
) -> None:
    """List jobs, the newest first."""
    query: dict[str, str | int | list[str]] = {"status": status or []}
    for name, value in (("step", step), ("tool", tool)):
        if value is not None:
            query[name] = value
    if run is not None:
        with open_client() as client:
            query["run"] = client.resolve("/v1/runs", run)
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json), query)


@app.command("show")
def show(job: str, as_json: JsonFlag = False) -> None:
    """Show a job with its attempts and errors, by id or the end of it."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, job)}")
    if as_json:
        print_json(found)
        return
    print_fields([(column.heading, found[column.key]) for column in COLUMNS])
    for title, columns in (("attempts", ATTEMPT_COLUMNS), ("errors", ERROR_COLUMNS)):
        if rows := objects_in(found, title):
            print(f"\n{title}")
            print_rows(rows, columns)


@app.command("cancel")
def cancel(
    job: Annotated[str | None, typer.Argument(help="Id of a job, or the end of it.")] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="All of this run: id, end of it, or @last.")
    ] = None,
    step: Annotated[str | None, typer.Option("--step", help="All of this step.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="All of this tool.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="pending or in_progress")] = None,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all are cancelled.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before many are cancelled.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Cancel a job, or every job that fits the options and has not ended. Final."""
    which = {"run": run, "step": step, "tool": tool, "status": status}
    given = {name: value for name, value in which.items() if value is not None}
    if (job is None) is (not given):
        raise CommandError("say a job, or which jobs by options, not both", ExitCode.USAGE)
    with open_client() as client:
        if job is not None:
            _cancel_one(client, job, reason, as_json)
        else:
            _cancel_many(client, given, _Wish(reason, wait, yes, as_json))


@app.command("priority")
def priority(job: str, name: PriorityName, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Give a job that has not ended another priority."""
    with open_client() as client:
        path = f"{PATH}/{client.resolve(PATH, job)}/priority"
        done = client.post(path, {"priority": name, "reason": reason})
    print_done(
        done, f"priority {name}" if done["jobs"] else f"it had priority {name} before", as_json=as_json
    )


@app.command("rerun")
def rerun(
    job: str,
    follow: Annotated[
        bool, typer.Option("--follow", help="With the steps that need its step, if a new run is made.")
    ] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Do a job once more that has ended: in its run if its step is open, else in a new run."""
    with open_client() as client:
        path = f"{PATH}/{client.resolve(PATH, job)}/rerun"
        done = client.post(path, {"follow": follow, "reason": reason}, once=True)
    print_made(done, done["job_id"], f"in run {done['run_id']}", as_json=as_json)


@app.command("remerge")
def remerge(job: str, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Merge the kept result of a job anew whose merge had failed. Nothing is scanned."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, job)}/remerge", {"reason": reason}, once=True)
    print_made(done, done["job_id"], f"in run {done['run_id']}", as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Wish:
    reason: str | None
    wait: bool
    yes: bool
    as_json: bool


def _cancel_one(client: "ApiClient", job: str, reason: str | None, as_json: bool) -> None:
    done = client.post(f"{PATH}/{client.resolve(PATH, job)}/cancel", {"reason": reason})
    print_done(
        done,
        f"cancelled job {done['job_id']}" if done["changed"] else "it had been cancelled before",
        as_json=as_json,
    )


def _cancel_many(client: "ApiClient", which: dict[str, str], wish: _Wish) -> None:
    if "run" in which:
        which["run"] = client.resolve("/v1/runs", which["run"])
    words = " ".join(f"{name}={value}" for name, value in which.items())
    if not wish.yes and not sys.stdin.isatty():
        raise CommandError(f"this cancels every job with {words}: say --yes", ExitCode.USAGE)
    if not wish.yes:
        typer.confirm(f"cancel every job with {words}?", abort=True, err=True)
    body: Json = {**which, "reason": wish.reason}
    done = client.post(f"{PATH}/cancel", body, once=True)
    if wish.wait:
        done = finished(client, str(done["id"]))
    print_operation(done, wish.as_json)
    if done["finished_at"] is None:
        note("it goes on; next: runlane operation show @last --wait")
