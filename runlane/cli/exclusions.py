"""`runlane exclusion …`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client
from runlane.cli.rules import Rules

app = typer.Typer(no_args_is_help=True, help="Exclusions: what is never scanned.")

RULES = Rules("exclusions", (
    Column("ID", "id"), Column("WORKSPACE", "workspace_id"), Column("TARGET", "target_id"),
    Column("KIND", "kind"), Column("VALUE", "value"), Column("BY", "created_by"), Column("REASON", "reason"),
))  # fmt: skip

Everywhere = Annotated[bool, typer.Option("--everywhere", help="In all workspaces; needs a platform key.")]


@app.command("list")
def index(everywhere: Everywhere = False, as_json: JsonFlag = False) -> None:
    """List what is never scanned, the exclusions of the platform included."""
    RULES.print(everywhere, as_json=as_json)


@app.command("add")
def add(
    domain: Annotated[str | None, typer.Option("--domain", help="A name and all below it.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="One name or address.")] = None,
    network: Annotated[str | None, typer.Option("--network", help="A network, as a CIDR.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65_535)] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Only in jobs of this target: its id.")
    ] = None,
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Exclude one thing at once: jobs that wait for it are skipped, running ones cancelled."""
    given = {"domain": domain, "host": host, "network": network, "port": None if port is None else str(port)}
    chosen = [(kind, value) for kind, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise CommandError("give one of --domain, --host, --network and --port", ExitCode.USAGE)
    body: Json = {"kind": chosen[0][0], "value": chosen[0][1], "reason": reason}
    if target is not None:
        body["target_id"] = target
    with open_client() as client:
        done = client.post(RULES.path(everywhere), body)
    print_done(
        done,
        f"exclusion {done['id']}: {done['kind']} {done['value']}; {done['jobs']} jobs ended",
        as_json=as_json,
    )


@app.command("remove")
def remove(
    exclusion_id: Annotated[str, typer.Argument(metavar="ID")],
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove an exclusion. Jobs that it ended stay ended."""
    with open_client() as client:
        done = client.post(f"{RULES.path(everywhere)}/{exclusion_id}/remove", {"reason": reason})
    print_done(done, f"removed exclusion {done['id']}: {done['kind']} {done['value']}", as_json=as_json)
