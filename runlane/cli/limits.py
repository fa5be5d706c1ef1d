"""`runlane limit …`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client
from runlane.cli.rules import Rules

app = typer.Typer(no_args_is_help=True, help="Limits: how much may be in progress, or begin in a minute.")

RULES = Rules("limits", (
    Column("ID", "id"), Column("WORKSPACE", "workspace_id"), Column("TOOL SET", "toolset"),
    Column("IN PROGRESS", "in_progress"), Column("OF", "max_in_progress"),
    Column("LAST MINUTE", "last_minute"), Column("OF", "per_minute"),
))  # fmt: skip

Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="Of a tool set in all workspaces; needs a platform key.")
]
Toolset = Annotated[str | None, typer.Option("--toolset", help="Only the tools of this set.")]


@app.command("list")
def index(everywhere: Everywhere = False, as_json: JsonFlag = False) -> None:
    """List the limits that count, and how much of each is used up now."""
    RULES.print(everywhere, as_json=as_json)


@app.command("set")
def put(
    in_progress: Annotated[
        int | None, typer.Option("--in-progress", min=1, help="Jobs in progress at once.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option("--per-minute", min=1, help="Claims in any minute.")
    ] = None,
    toolset: Toolset = None,
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Limit the workspace, one of its tool sets, or a tool set everywhere. Repeated, it changes nothing."""
    body: Json = {"max_in_progress": in_progress, "per_minute": per_minute, "reason": reason}
    if toolset is not None:
        body["toolset"] = toolset
    with open_client() as client:
        done = client.put(RULES.path(everywhere), body)
    print_done(done, f"limit {done['id']}", as_json=as_json)


@app.command("remove")
def remove(
    toolset: Toolset = None, everywhere: Everywhere = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Remove the limit that was set by the same words."""
    path = RULES.path(everywhere)
    with open_client() as client:
        for row in objects_in(client.get(path), "items"):
            if (row["workspace_id"] is None) is everywhere and row["toolset"] == toolset:
                done = client.post(f"{path}/{row['id']}/remove", {"reason": reason})
                break
        else:
            raise CommandError("there is no such limit", ExitCode.NOT_FOUND, hint="runlane limit list")
    print_done(done, f"removed limit {done['id']}", as_json=as_json)
