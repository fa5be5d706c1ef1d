"""`runlane definition …`: saved definitions; those with `on` start runs by themselves."""

from typing import Annotated, Final

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json
from runlane.cli.profile import open_client
from runlane.cli.runs import read_definition

app = typer.Typer(no_args_is_help=True, help="Definitions that are saved, and the events that start them.")

PATH: Final = "/v1/definitions"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("VERSION", "version"), Column("ON", "body.on"),
    Column("CREATED", "created_at"),
)  # fmt: skip
VERSION_COLUMNS = (
    Column("VERSION", "version"), Column("SAVED", "saved_at"), Column("BY", "saved_by"),
    Column("ON", "body.on"),
)  # fmt: skip

DefinitionName = Annotated[str, typer.Argument(help="Name or id of a saved definition, or @last.")]


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
    print_done(saved, f"saved {saved['name']}, version {saved['version']}", as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List saved definitions, and the events that start runs of them."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(definition: DefinitionName = "@last", as_json: JsonFlag = False) -> None:
    """Show a saved definition as it is now."""
    import json

    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, definition)}")
    if as_json:
        print_json(found)
        return
    print_fields([(key.upper(), found[key]) for key in ("id", "name", "version", "created_at")])
    print(json.dumps(found["body"], indent=2))


@app.command("versions")
def versions(
    definition: DefinitionName = "@last", limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False
) -> None:
    """List the versions of a saved definition, the newest first."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, definition)}/versions"
    print_list(Listing(path, VERSION_COLUMNS, limit, sort, as_json))


@app.command("delete")
def delete(
    definition: DefinitionName,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete a saved definition; its runs go on."""
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, definition)}/delete", {"reason": reason})
    print_done(done, f"deleted {done['name']}", as_json=as_json)
