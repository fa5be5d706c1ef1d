"""`runlane config-profile …`: options under a name, for steps to take."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client
from runlane.cli.runs import parse_options

app = typer.Typer(no_args_is_help=True, help="Profiles: options of a tool that steps take by a name.")

PATH: Final = "/v1/config-profiles"
COLUMNS = (
    Column("ID", "id"), Column("TOOL", "tool_id"), Column("NAME", "name"), Column("OPTIONS", "options"),
)  # fmt: skip


@app.command("save")
def save(
    tool: Annotated[str, typer.Argument(help="Name of a tool.")],
    name: Annotated[str, typer.Argument(help="What steps call it in `config_profile`.")],
    options: Annotated[
        list[str] | None, typer.Option("--set", help="option=value; may be repeated. JSON is taken as such.")
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Save options of a tool under a name, in place of those that were there."""
    values = parse_options([f"{tool}.{text}" for text in options or ()]).get(tool, {})
    with open_client() as client:
        body: Json = {"tool": tool, "name": name, "options": values, "reason": reason}
        done = client.put(PATH, body)
    print_done(done, f"saved {done['name']} of {done['tool_id']}", as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List the profiles of the workspace."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("delete")
def delete(
    profile: Annotated[str, typer.Argument(help="Id of a profile, the end of one, or @last.")],
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete a profile; runs that began with it keep its options."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, profile)}/delete", {"reason": reason})
    print_done(done, f"deleted {done['name']}", as_json=as_json)
