"""`runlane secret …`: set, listed, removed; a value is read from standard input or a file, never shown."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, note, print_done
from runlane.cli.profile import open_client

app = typer.Typer(
    no_args_is_help=True, help="Secrets: values that options refer to by name; they are never shown."
)

PATH: Final = "/v1/secrets"
COLUMNS = (
    Column("NAME", "name"), Column("CREATED", "created_at"), Column("REPLACED", "rotated_at"),
    Column("KEY", "key_id"),
)  # fmt: skip

Name = Annotated[str, typer.Argument(help="What options call it: {secret_ref: NAME}.")]


@app.command("set")
def put(
    name: Name,
    file: Annotated[
        Path | None, typer.Option("--file", help="File with the value; default: standard input.")
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Store a value under a name, in place of the one that was there. A line break at its end is dropped."""
    body: Json = {"value": _read(name, file), "reason": reason}
    with open_client() as client:
        done = client.put(f"{PATH}/{name}", body)
    print_done(done, f"set {done['name']}", as_json=as_json)


@app.command("list")
def index(as_json: JsonFlag = False) -> None:
    """List the names of the workspace's secrets."""
    with open_client() as client:
        found = client.get(PATH)
    print_all(found, COLUMNS, as_json=as_json)


@app.command("remove")
def remove(name: Name, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Remove a secret. Jobs that refer to it fail when a worker claims them."""
    with open_client() as client:
        done = client.post(f"{PATH}/{name}/remove", {"reason": reason})
    print_done(done, f"removed {done['name']}", as_json=as_json)


@app.command("rotate")
def rotate(as_json: JsonFlag = False) -> None:
    """Encrypt all secrets with the newest key, in all workspaces; needs a platform key. Repeatable."""
    with open_client() as client:
        done = client.post("/v1/platform/secrets/rotate", {})
    print_done(done, f"encrypted {done['rotated']} anew with the key {done['key_id']}", as_json=as_json)


def _read(name: str, file: Path | None) -> str:
    # an argument would stay in the history of the shell and in the list of processes
    if file is None and sys.stdin.isatty():
        note(f"the value of {name}, then Ctrl-D:")
    try:
        text = sys.stdin.read() if file is None else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file or 'standard input'}: {error}", ExitCode.USAGE) from error
    return text.removesuffix("\n").removesuffix("\r")
