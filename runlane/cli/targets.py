"""`runlane target …`."""

from typing import Annotated

import typer

from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Sort
from runlane.cli.output import Column, note, print_fields, print_json
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="What is to be scanned.")

COLUMNS = (
    Column("ID", "id"), Column("KIND", "kind"), Column("TARGET", "value"), Column("ADDED", "created_at"),
)  # fmt: skip


@app.command("add")
def add(
    values: Annotated[list[str], typer.Argument(help="Domains, addresses or networks.")],
    as_json: JsonFlag = False,
) -> None:
    """Add targets; the first that is refused ends the command."""
    with open_client() as client:
        for value in values:
            target = client.post("/v1/targets", {"value": value})
            if as_json:
                print_json(target)
            else:
                print(target["id"])
                note(f"added {target['kind']} {target['value']}")


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List targets."""
    print_list(Listing("/v1/targets", COLUMNS, limit, sort, as_json))


@app.command("show")
def show(target: str, as_json: JsonFlag = False) -> None:
    """Show one target, by id or by the end of it."""
    with open_client() as client:
        found = client.get(f"/v1/targets/{client.resolve('/v1/targets', target)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(column.heading, found[column.key]) for column in COLUMNS])
