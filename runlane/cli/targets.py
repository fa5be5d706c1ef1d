"""`runlane target …`."""

from pathlib import Path
from typing import Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, note, print_done, print_fields, print_json, print_made
from runlane.cli.profile import open_client
from runlane.cli.runs import Groups, Targets, selection

app = typer.Typer(no_args_is_help=True, help="What is to be scanned.")

COLUMNS = (
    Column("ID", "id"), Column("KIND", "kind"), Column("TARGET", "value"), Column("NETWORK", "network_id"),
    Column("TAGS", "tags"),
    Column("ADDED", "created_at"),
)  # fmt: skip


Network = Annotated[str | None, typer.Option("--network", help="Internal network, by name or id.")]


@app.command("add")
def add(
    values: Annotated[list[str], typer.Argument(help="Domains, addresses or networks.")],
    network: Network = None,
    as_json: JsonFlag = False,
) -> None:
    """Add targets; the first that is refused ends the command."""
    with open_client() as client:
        for value in values:
            target = client.post("/v1/targets", {"value": value, "network": network})
            print_made(target, target["id"], f"added {target['kind']} {target['value']}", as_json=as_json)


@app.command("import")
def import_file(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, or NDJSON if it ends so.", exists=True)],
    network: Network = None,
    as_json: JsonFlag = False,
) -> None:
    """Add all targets of a file or, if a line is wrong, none; every such line is said."""
    file_format = "ndjson" if path.suffix in (".ndjson", ".jsonl") else "csv"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}", ExitCode.USAGE) from error
    with open_client() as client:
        body: Json = {"format": file_format, "text": text, "network": network}
        done = client.post("/v1/targets/import", body)
    if as_json:
        print_json(done)
    faults = objects_in(done, "faults")
    for fault in () if as_json else faults:
        note(f"{path}:{fault['line']}: {fault['detail']} ({fault['code']})")
    if faults:
        raise CommandError(f"{len(faults)} lines are wrong: nothing was added", ExitCode.REFUSED)
    if not as_json:
        note(f"{done['added']} added, {done['known']} known, {done['tagged']} of them with new tags")


@app.command("tag")
def tag(
    tags: Annotated[list[str], typer.Argument(help="Tags to add; those with a leading ^ are removed.")],
    target: Targets = None,
    group: Groups = None,
    of_tag: Annotated[
        list[str] | None, typer.Option("--tag", help="All targets with this tag. Repeatable.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add tags to targets, groups of them, or all with a tag; remove others."""
    body: Json = {
        "add": [each for each in tags if not each.startswith("^")],
        "remove": [each[1:] for each in tags if each.startswith("^")],
    }
    with open_client() as client:
        done = client.post("/v1/targets/tags", body | selection(client, target, group, of_tag))
    print_done(done, f"{done['changed']} targets have other tags now", as_json=as_json)


@app.command("list")
def index(
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Repeatable: with all of these.")] = None,
    network: Network = None,
    limit: Limit = 50,
    sort: Sort = None,
    as_json: JsonFlag = False,
) -> None:
    """List targets."""
    query: dict[str, str | int | list[str]] = {"tag": tag} if tag else {}
    if network:
        query["network"] = network
    print_list(Listing("/v1/targets", COLUMNS, limit, sort, as_json), query)


@app.command("move")
def move(
    target: Annotated[str, typer.Argument(help="Id of a target, the end of one, or @last.")],
    network: Network = None,
    nowhere: Annotated[bool, typer.Option("--no-network", help="Out of any internal network.")] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a target into an internal network, or take it out. Its waiting jobs go with it."""
    if (network is None) != nowhere:
        raise CommandError("say --network or --no-network", ExitCode.USAGE)
    with open_client() as client:
        path = f"/v1/targets/{client.resolve('/v1/targets', target)}/network"
        done = client.post(path, {"network": network, "reason": reason})
    where = f"is in the network {network}" if network else "is in no network"
    print_done(done, f"{done['value']} {where}", as_json=as_json)


@app.command("show")
def show(target: str, as_json: JsonFlag = False) -> None:
    """Show one target, by id or by the end of it."""
    with open_client() as client:
        found = client.get(f"/v1/targets/{client.resolve('/v1/targets', target)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(column.heading, found[column.key]) for column in COLUMNS])
