"""`runlane definition …`: saved definitions; those with `on` start runs by themselves."""

from typing import Annotated, Final

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, note, print_json
from runlane.cli.profile import open_client
from runlane.cli.runs import read_definition

app = typer.Typer(no_args_is_help=True, help="Definitions that are saved, and the events that start them.")

PATH: Final = "/v1/definitions"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("VERSION", "version"), Column("ON", "body.on"),
    Column("CREATED", "created_at"),
)  # fmt: skip


@app.command("save")
def save(
    file: Annotated[str, typer.Argument(help="@file with a definition (YAML or JSON).")],
    as_json: JsonFlag = False,
) -> None:
    """Save a definition under its name. With `on: target.created`, each new target is scanned by it."""
    if not file.startswith("@"):
        raise CommandError("say @file", ExitCode.USAGE)
    with open_client() as client:
        saved = client.put(PATH, {"definition": read_definition(file)})
    if as_json:
        print_json(saved)
    else:
        note(f"saved {saved['name']}, version {saved['version']}")


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List saved definitions, and the events that start runs of them."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("delete")
def delete(
    definition: Annotated[str, typer.Argument(help="Id of a definition, the end of one, or @last.")],
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete a saved definition; its runs go on."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, definition)}/delete", {"reason": reason})
    if as_json:
        print_json(done)
    else:
        note(f"deleted {done['name']}")
