"""`runlane group …`: named sets of targets, for runs, schedules and blackout windows."""

from pathlib import Path
from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json, print_made
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Groups: named sets of targets.")

PATH: Final = "/v1/groups"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("TAGS", "tags"), Column("BY", "created_by"),
    Column("CREATED", "created_at"),
)  # fmt: skip
TARGET_COLUMNS = (Column("ID", "id"), Column("TARGET", "value"), Column("TAGS", "tags"))

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name or id of a group, or @last.")]
Rule = Annotated[
    list[str] | None, typer.Option("--tag", help="Repeatable: what has all of these is in it by itself.")
]
Values = Annotated[
    list[str] | None, typer.Argument(metavar="[TARGET]...", help="Domains, addresses, networks.")
]
File = Annotated[Path | None, typer.Option("--file", help="A file with a target in each line.", exists=True)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Repeatable: all with any of these.")]

LINES: Final = 10_000
"""Targets of one request."""


@app.command("create")
def create(name: str, tag: Rule = None, as_json: JsonFlag = False) -> None:
    """Make a group: of members, or of whatever has all of some tags, or both."""
    with open_client() as client:
        made = client.post(PATH, {"name": name, "tags": tag or []})
    print_made(made, made["id"], f"{made['targets']} targets are in it", as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List groups."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(group: GroupName, as_json: JsonFlag = False) -> None:
    """Show a group, and how many targets are in it."""
    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, group)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(key.upper(), found[key]) for key in ("id", "name", "tags", "members", "targets")])


@app.command("targets")
def targets(group: GroupName, limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List the targets that are in a group now."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, group)}/targets"
    print_list(Listing(path, TARGET_COLUMNS, limit, sort, as_json))


@app.command("edit")
def edit(
    group: GroupName,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    tag: Rule = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Members only from now on.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Rename a group, or give it other tags; what refers to it goes on to."""
    wanted: Json = {"name": name} if name else {}
    if tag or no_tags:
        wanted["tags"] = tag or []
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, group)}"
        done = client.patch(path, wanted)
    print_done(done, f"group {done['name']}: {done['targets']} targets", as_json=as_json)


@app.command("delete")
def delete(group: GroupName, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Delete a group that no schedule and no blackout window is about; its targets stay."""
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, group)}/delete", {"reason": reason})
    print_done(done, f"deleted group {done['name']}", as_json=as_json)


@app.command("add")
def add(
    group: GroupName, value: Values = None, file: File = None, tag: Tags = None, as_json: JsonFlag = False
) -> None:
    """Take targets into a group: all that are named or, if one is not there, none."""
    _change(group, "members", _members(value, file, tag), as_json)


@app.command("remove")
def remove(
    group: GroupName, value: Values = None, file: File = None, tag: Tags = None, as_json: JsonFlag = False
) -> None:
    """Take members out of a group."""
    _change(group, "members/remove", _members(value, file, tag), as_json)


def _members(values: list[str] | None, file: Path | None, tags: list[str] | None) -> Json:
    named = list(values or [])
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {error}", ExitCode.USAGE) from error
        named += [line.strip() for line in lines if line.strip()]
    if len(named) > LINES:
        raise CommandError(f"at most {LINES} targets at once; more by --tag", ExitCode.USAGE)
    return {"values": named, "tags": tags or []}


def _change(group: str, how: str, members: Json, as_json: bool) -> None:
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, group)}/{how}", members)
    said = f"{done['changed']} changed; {done['members']} members, {done['targets']} targets in it"
    print_done(done, said, as_json=as_json)
