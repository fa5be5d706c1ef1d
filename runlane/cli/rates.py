"""`runlane rate …`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client
from runlane.cli.rules import Rules

app = typer.Typer(no_args_is_help=True, help="Rates: what is sent a second to targets and networks.")

RULES = Rules("rates", (
    Column("ID", "id"), Column("WORKSPACE", "workspace_id"), Column("TARGET", "target_id"),
    Column("NETWORK", "network_id"), Column("PER SECOND", "per_second"), Column("BY", "created_by"),
))  # fmt: skip

Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="Each target in all workspaces; needs a platform key.")
]
Target = Annotated[str | None, typer.Option("--target", help="Id of a target, the end of one, or @last.")]
Network = Annotated[str | None, typer.Option("--network", help="Internal network, by name or id.")]


@app.command("list")
def index(everywhere: Everywhere = False, as_json: JsonFlag = False) -> None:
    """List the rates that count."""
    RULES.print(everywhere, as_json=as_json)


@app.command("set")
def put(
    per_second: Annotated[int, typer.Argument(min=1, help="Packets or requests a second.")],
    target: Target = None,
    network: Network = None,
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Limit what is sent to a target, to a network, or by the workspace. Repeated, it changes nothing."""
    if everywhere and (target or network):
        raise CommandError("--everywhere is for each target alike", ExitCode.USAGE)
    body: Json = {"per_second": per_second, "reason": reason}
    with open_client() as client:
        if target:
            body["target_id"] = client.resolve("/v1/targets", target)
        if network:
            body["network_id"] = find_named(client, "/v1/networks", network)
        done = client.put(RULES.path(everywhere), body)
    print_done(done, f"rate {done['id']}", as_json=as_json)


@app.command("remove")
def remove(
    rate: Annotated[str, typer.Argument(help="Id of a rate, or the end of one.")],
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove a rate."""
    path = RULES.path(everywhere)
    with open_client() as client:
        found = [row for row in objects_in(client.get(path), "items") if str(row["id"]).endswith(rate)]
        if len(found) != 1:
            raise CommandError("there is no such rate", ExitCode.NOT_FOUND, hint="runlane rate list")
        done = client.post(f"{path}/{found[0]['id']}/remove", {"reason": reason})
    print_done(done, f"removed rate {done['id']}", as_json=as_json)
