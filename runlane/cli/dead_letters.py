"""`runlane dlq …`: events that a lane has given up."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json, as_object
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_all, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Dead letters: events that a lane has given up.")

PATH: Final = "/v1/dead-letters"
COLUMNS = (
    Column("ID", "id"), Column("LANE", "lane"), Column("TYPE", "type"), Column("SUBJECT", "subject"),
    Column("STATUS", "status"), Column("ATTEMPTS", "attempts"), Column("GIVEN UP", "created_at"),
    Column("ERROR", "error"),
)  # fmt: skip
ENTRIES = (
    Column("ENTRY", "entry_id"), Column("LANE", "lane"), Column("TYPE", "type"), Column("MET", "created_at"),
    Column("ERROR", "error"),
)  # fmt: skip

LaneName = Annotated[str | None, typer.Option("--lane", help="Only of this lane.")]
TypeName = Annotated[str | None, typer.Option("--type", help="Only of events of this type.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, or the ends of them.")]


@app.command("list")
def index(
    lane: LaneName = None,
    type_name: TypeName = None,
    status: Annotated[str | None, typer.Option("--status", help="open, asked or redriven")] = None,
    unroutable: Annotated[
        bool, typer.Option("--unroutable", help="Entries of no workspace; needs a platform key.")
    ] = False,
    limit: Limit = 50,
    sort: Sort = None,
    as_json: JsonFlag = False,
) -> None:
    """List dead letters, the newest first."""
    if unroutable:
        with open_client() as client:
            found = client.get("/v1/platform/dead-letters")
        print_all(found, ENTRIES, as_json=as_json)
        return
    given = {"lane": lane, "type": type_name, "status": status}
    query = {name: value for name, value in given.items() if value is not None}
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json), query)


@app.command("show")
def show(letter: str, as_json: JsonFlag = False) -> None:
    """Show a dead letter with its envelope, by its id or the end of it."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, letter)}")
    if as_json:
        print_json(found)
        return
    fields = as_object(found.pop("fields"))
    print_fields([*found.items(), *((f"  {name}", text) for name, text in fields.items())])


@app.command("redrive")
def redrive(
    letters: Ids = None,
    lane: LaneName = None,
    type_name: TypeName = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Have the lanes of open letters handle them once more: the oldest 500 that fit."""
    done = _act("redrive", letters, {"lane": lane, "type": type_name, "reason": reason})
    print_done(done, f"{done['letters']} letters are handled once more", as_json=as_json)


@app.command("purge")
def purge(
    letters: Ids = None,
    lane: LaneName = None,
    type_name: TypeName = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove letters for good: the oldest 500 that fit."""
    done = _act("purge", letters, {"lane": lane, "type": type_name, "reason": reason})
    print_done(done, f"{done['letters']} letters removed", as_json=as_json)


def _act(verb: str, letters: list[str] | None, body: Json) -> Json:
    if not letters and body["lane"] is None and body["type"] is None:
        raise CommandError("say which: ids, --lane or --type", ExitCode.USAGE)
    with open_client() as client:
        ids = [client.resolve(PATH, letter) for letter in letters] if letters else None
        return client.post(f"{PATH}/{verb}", {**body, "ids": ids})
