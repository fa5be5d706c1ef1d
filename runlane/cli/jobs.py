"""`runlane job …`."""

from typing import Annotated

import typer

from runlane.cli.answers import objects_in
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Sort
from runlane.cli.output import Column, print_fields, print_json, print_rows
from runlane.cli.profile import open_client

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
