"""`runlane worker rotate`."""

from typing import Annotated

import typer

from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import print_done
from runlane.cli.profile import open_client


def register(worker_app: typer.Typer) -> None:
    """Adds the command to those about workers."""
    worker_app.command("rotate")(rotate)


def rotate(
    worker: Annotated[str, typer.Argument(help="Id of the worker, or the end of it.")],
    shared: Annotated[
        bool, typer.Option("--shared", help="A shared worker, by its whole id; needs a platform key.")
    ] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Have a scan worker take a new credential. What it does goes on; the old one is dead in minutes."""
    with open_client() as client:
        if shared:
            path = f"/v1/platform/workers/{worker}/rotate"
        else:
            path = f"/v1/workers/{client.resolve('/v1/workers', worker)}/rotate"
        done = client.post(path, {"reason": reason})
    print_done(
        done,
        f"worker {done['worker_id']} is to take a new credential since {done['rotation_asked_at']}",
        as_json=as_json,
    )
