"""`runlane network …`: internal networks, for targets that only workers bound to them may scan."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json, print_made
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Internal networks: places with workers of their own.")

PATH: Final = "/v1/networks"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("CIDRS", "cidrs"), Column("BY", "created_by"),
    Column("CREATED", "created_at"),
)  # fmt: skip

NetworkName = Annotated[str, typer.Argument(metavar="NETWORK", help="Name or id of a network, or @last.")]


@app.command("create")
def create(
    name: str,
    cidr: Annotated[list[str], typer.Argument(help="All addresses that workers of it may contact.")],
    as_json: JsonFlag = False,
) -> None:
    """Make a network. Its CIDRs do not overlap; those of another network may be the same."""
    with open_client() as client:
        made = client.post(PATH, {"name": name, "cidrs": cidr})
    hint = f"next: runlane key create --network {name} 'workers of {name}'"
    print_made(made, made["id"], hint, as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List networks."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(network: NetworkName, as_json: JsonFlag = False) -> None:
    """Show a network."""
    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, network)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(key.upper(), found[key]) for key in ("id", "name", "cidrs", "version")])


@app.command("edit")
def edit(
    network: NetworkName,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    cidr: Annotated[
        list[str] | None, typer.Option("--cidr", help="Repeatable: these in place of those it has.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Rename a network, or give it other CIDRs; no target may be outside of them."""
    wanted: Json = {"name": name} if name else {}
    if cidr:
        wanted["cidrs"] = cidr
    with open_client() as client:
        done = client.patch(f"{PATH}/{find_named(client, PATH, network)}", wanted)
    print_done(done, f"network {done['name']}: {', '.join(map(str, _cidrs(done)))}", as_json=as_json)


@app.command("delete")
def delete(network: NetworkName, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Delete a network that no target, worker, valid key or rate refers to."""
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, network)}/delete", {"reason": reason})
    print_done(done, f"deleted network {done['name']}", as_json=as_json)


def _cidrs(network: Json) -> list[object]:
    found = network["cidrs"]
    return list(found) if isinstance(found, list) else []
