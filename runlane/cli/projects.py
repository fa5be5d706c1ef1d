"""`runlane project …`: named sets of rules over assets."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json, print_made
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Projects: assets by rules, whose new ones may start runs.")

PATH: Final = "/v1/projects"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("VERSION", "version"), Column("BY", "created_by"),
    Column("CREATED", "created_at"),
)  # fmt: skip
ASSET_COLUMNS = (
    Column("ID", "id"), Column("ASSET", "value"), Column("TARGET", "target_id"), Column("SINCE", "since"),
)  # fmt: skip

ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="Name or id of a project, or @last.")]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="KIND=VALUE",
        help="Repeatable; KIND: domain, cidr, target, group, tag, port, technology, severity.",
    ),
]


@app.command("create")
def create(name: str, rule: Rules = None, as_json: JsonFlag = False) -> None:
    """Make a project; what its rules fit comes in soon."""
    body: Json = {"name": name, "rules": _rules(rule)}
    with open_client() as client:
        made = client.post(PATH, body)
    print_made(made, made["id"], f"project {name}", as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List projects."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(project: ProjectName, as_json: JsonFlag = False) -> None:
    """Show a project, its rules, and how many assets are in it."""
    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, project)}")
    if as_json:
        print_json(found)
    else:
        rules = ", ".join(f"{rule['kind']}={rule['value']}" for rule in objects_in(found, "rules"))
        fields = [(key.upper(), found[key]) for key in ("id", "name", "version", "assets")]
        print_fields([*fields, ("RULES", rules)])


@app.command("assets")
def assets(project: ProjectName, limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List the assets that are in a project now."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, project)}/assets"
    print_list(Listing(path, ASSET_COLUMNS, limit, sort, as_json))


@app.command("edit")
def edit(
    project: ProjectName,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    rule: Rules = None,
    as_json: JsonFlag = False,
) -> None:
    """Rename a project, or replace its rules: assets come in and leave soon."""
    wanted: Json = {"name": name} if name else {}
    if rule:
        wanted["rules"] = _rules(rule)
    with open_client() as client:
        done = client.patch(f"{PATH}/{find_named(client, PATH, project)}", wanted)
    print_done(done, f"project {done['name']}: version {done['version']}", as_json=as_json)


@app.command("delete")
def delete(project: ProjectName, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Delete a project; its assets and its runs stay."""
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, project)}/delete", {"reason": reason})
    print_done(done, f"deleted project {done['name']}", as_json=as_json)


def _rules(said: list[str] | None) -> list[dict[str, str]]:
    rules = []
    for text in said or []:
        kind, is_there, value = text.partition("=")
        if not is_there:
            raise CommandError(f"a rule is written KIND=VALUE, not {text!r}", ExitCode.USAGE)
        rules.append({"kind": kind, "value": value})
    return rules
