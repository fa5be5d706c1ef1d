"""`runlane event …`: what is on the bus, and what was audited before that."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import as_object
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit
from runlane.cli.output import Column, print_fields, print_json
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Events: what happened, as the bus has it.")

PATH: Final = "/v1/events"
COLUMNS = (
    Column("PLACE", "sequence"), Column("WHEN", "occurred_at"), Column("TYPE", "type"),
    Column("SUBJECT", "subject"), Column("KEPT IN", "kept_in"),
)  # fmt: skip


@app.command("list")
def index(
    type_name: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only about this, as `run/ID`.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on (ISO 8601, UTC: Z).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this time.")] = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Of all workspaces; needs a platform key.")
    ] = False,
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="With --everywhere: only of this one (id).")
    ] = None,
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    """List events, the newest first: all of the last 7 days, before that what is audited."""
    given = {"type": type_name, "subject": subject, "since": since, "until": until, "workspace": workspace}
    query = {name: value for name, value in given.items() if value is not None}
    path = "/v1/platform/events" if everywhere else PATH
    print_list(Listing(path, COLUMNS, limit, None, as_json), query)


@app.command("show")
def show(place: int, as_json: JsonFlag = False) -> None:
    """Show the event at a place on the bus."""
    with open_client() as client:
        found = client.get(f"{PATH}/{place}")
    if as_json:
        print_json(found)
        return
    data = as_object(found.pop("data"))
    print_fields([*found.items(), *((f"  {name}", value) for name, value in data.items())])
