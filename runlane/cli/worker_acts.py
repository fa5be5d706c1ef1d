"""`runlane worker show`, `drain`, `undrain`, `revoke` and `delete`."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import print_done, print_fields, print_json
from runlane.cli.profile import open_client

_SHOWN: Final = (
    *("id", "name", "status", "network_id", "drained_at", "jobs", "slots", "tools", "version", "protocol"),
    *("not_polling", "beat_at", "joined_at", "left_at", "deleted_at"),
)

WorkerRef = Annotated[str, typer.Argument(metavar="WORKER", help="Id of the worker, or the end of it.")]
Shared = Annotated[
    bool, typer.Option("--shared", help="A shared worker, by its whole id; needs a platform key.")
]


def register(worker_app: typer.Typer) -> None:
    """Adds the commands to those about workers."""
    for name, command in (
        ("show", show),
        ("drain", drain),
        ("undrain", undrain),
        ("revoke", revoke),
        ("delete", delete),
    ):
        worker_app.command(name)(command)


def show(worker: WorkerRef, as_json: JsonFlag = False) -> None:
    """Show one scan worker of the workspace, and how many jobs it has in progress."""
    with open_client() as client:
        found = client.get(f"/v1/workers/{client.resolve('/v1/workers', worker)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(key.upper().replace("_", " "), found[key]) for key in _SHOWN])


def drain(
    worker: WorkerRef, shared: Shared = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Have a scan worker finish what it has and take nothing new, until `undrain`."""
    done = _act(worker, "drain", shared, reason)
    print_done(done, _said(done, "takes nothing new", "was drained before"), as_json=as_json)


def undrain(
    worker: WorkerRef, shared: Shared = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Have a drained scan worker take jobs again."""
    done = _act(worker, "undrain", shared, reason)
    print_done(done, _said(done, "takes jobs again", "was not drained"), as_json=as_json)


def revoke(
    worker: WorkerRef, shared: Shared = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Make a scan worker's credential worthless, for good. Its jobs go to other workers."""
    done = _act(worker, "revoke", shared, reason)
    print_done(done, _said(done, "is revoked", "was revoked before"), as_json=as_json)


def delete(
    worker: WorkerRef, shared: Shared = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Put a scan worker away that is off line or revoked. What it did is kept."""
    done = _act(worker, "delete", shared, reason)
    print_done(done, _said(done, "is deleted", "was deleted before"), as_json=as_json)


def _act(worker: str, verb: str, shared: bool, reason: str | None) -> Json:
    with open_client() as client:
        if shared:
            path = f"/v1/platform/workers/{worker}/{verb}"
        else:
            path = f"/v1/workers/{client.resolve('/v1/workers', worker)}/{verb}"
        return client.post(path, {"reason": reason})


def _said(done: Json, now: str, before: str) -> str:
    return f"worker {done['worker_id']} {now if done['changed'] else before}"
