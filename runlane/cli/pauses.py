"""`runlane pause …`. A run is paused by `runlane run pause` and goes on by `runlane run resume`."""

from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

app = typer.Typer(no_args_is_help=True, help="Pauses: nothing more is dispatched, what runs is finished.")

COLUMNS = (
    Column("ID", "id"), Column("SCOPE", "scope"), Column("RUN", "run_id"), Column("TOOL SET", "toolset"),
    Column("BY", "created_by"), Column("SINCE", "created_at"), Column("REASON", "reason"),
)  # fmt: skip

Toolset = Annotated[str | None, typer.Option("--toolset", help="Only the tools of this set.")]
Everything = Annotated[
    bool, typer.Option("--everything", help="Every workspace, for maintenance; needs a platform key.")
]


@app.command("list")
def index(everything: Everything = False, as_json: JsonFlag = False) -> None:
    """List the pauses in force: what is paused, by whom, since when and why."""
    with open_client() as client:
        found = client.get(_path(everything))
    print_all(found, COLUMNS, as_json=as_json)


@app.command("set")
def pause(
    toolset: Toolset = None, everything: Everything = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Pause the workspace, one of its tool sets, or everything. Repeated, it changes nothing."""
    body: Json = {"reason": reason}
    if toolset is not None:
        body["toolset"] = toolset
    with open_client() as client:
        done = client.post(_path(everything, toolset), body)
    print_done(done, f"paused: {_what(done)}", as_json=as_json)


@app.command("lift")
def lift(
    toolset: Toolset = None, everything: Everything = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Let go on what was paused by the same words."""
    path = _path(everything, toolset)
    with open_client() as client:
        done = client.post(f"{path}/{_find(client, path, toolset)}/lift", {"reason": reason})
    print_done(done, f"goes on: {_what(done)}", as_json=as_json)


def _path(everything: bool, toolset: str | None = None) -> str:
    if everything and toolset is not None:
        raise CommandError("--everything and --toolset exclude each other", ExitCode.USAGE)
    return "/v1/platform/pauses" if everything else "/v1/pauses"


def _find(client: "ApiClient", path: str, toolset: str | None) -> object:
    wanted = (
        {"platform"} if path.startswith("/v1/platform") else {"workspace" if toolset is None else "toolset"}
    )
    for row in objects_in(client.get(path), "items"):
        if row["scope"] in wanted and row["toolset"] == toolset:
            return row["id"]
    raise CommandError("that is not paused", ExitCode.NOT_FOUND, hint="runlane pause list")


def _what(pause: Json) -> str:
    return f"{pause['scope']} {pause['toolset'] or ''}".strip()
