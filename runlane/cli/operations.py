"""`runlane operation …`: acts on many jobs, and how far they have come."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, note, print_fields, print_json
from runlane.cli.profile import open_client

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

app = typer.Typer(no_args_is_help=True, help="Operations: one act on many jobs, with its progress.")

PATH: Final = "/v1/operations"
COLUMNS = (
    Column("ID", "id"), Column("ACTION", "action"), Column("FILTER", "filter"), Column("FITTED", "matched"),
    Column("CHANGED", "changed"), Column("BY", "created_by"), Column("BEGUN", "as_of"),
    Column("FINISHED", "finished_at"), Column("REASON", "reason"),
)  # fmt: skip

_LOOK_S: Final = 0.5

OperationId = Annotated[str, typer.Argument(help="Id of an operation, the end of one, or @last.")]


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List operations, the newest first."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(
    operation: OperationId = "@last",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is finished.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show an operation and how far it has come."""
    with open_client() as client:
        operation_id = client.resolve(PATH, operation)
        found = finished(client, operation_id) if wait else client.get(f"{PATH}/{operation_id}")
    print_operation(found, as_json)


@app.command("abort")
def abort(operation: OperationId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """End an operation before its time; what it has done stays done."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, operation)}/abort", {"reason": reason})
    print_operation(done, as_json)


def finished(client: "ApiClient", operation_id: str) -> Json:
    """Waits for the end of an operation, saying how far it is."""
    while True:
        found = client.get(f"{PATH}/{operation_id}")
        if found["finished_at"] is not None:
            return found
        note(f"{found['changed']} jobs so far")
        time.sleep(_LOOK_S)


def print_operation(found: Json, as_json: bool) -> None:
    """Prints one operation."""
    if as_json:
        print_json(found)
    else:
        print_fields([(column.heading, found[column.key]) for column in COLUMNS])
