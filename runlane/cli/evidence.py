"""`runlane job attempts`, `job errors` and `job raw`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from runlane.cli.answers import objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, note, print_json
from runlane.cli.profile import open_client
from runlane.cli.text import visible

PATH = "/v1/jobs"
COLUMNS = (
    Column("ATTEMPT", "attempt"), Column("WORKER", "worker"), Column("CLAIMED", "claimed_at"),
    Column("ENDED", "ended_at"), Column("OUTCOME", "outcome"), Column("CHARGED", "charged"),
    Column("VERSION", "tool_version"), Column("RAN", "argv"),
)  # fmt: skip


def register(jobs: typer.Typer) -> None:
    """Adds the commands to their group."""
    jobs.command("attempts")(attempts)
    jobs.command("errors")(errors)
    jobs.command("raw")(raw)


def attempts(job: str, as_json: JsonFlag = False) -> None:
    """List the attempts of a job, the newest first: worker, outcome, what was run."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, job)}/attempts")
    print_all(found, COLUMNS, as_json=as_json)


def errors(job: str, as_json: JsonFlag = False) -> None:
    """Show the errors of a job, the last first, with what it had found until then."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, job)}/errors")
    if as_json:
        print_json(found)
        return
    for error in objects_in(found, "items"):
        head = (
            f"attempt {error['attempt']}: {error['outcome']}, {error['times']} times, last {error['last_at']}"
        )
        print(f"{head}\n  {visible(error['message'])}")
        if error["partial"]:
            print(f"  found until then: {visible(error['partial'])}")


def raw(
    job: str,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Default: the last one.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new file to write to.")] = None,
) -> None:
    """Download what an attempt of a job staged, as it is, while it is kept (NDJSON)."""
    with open_client() as client:
        path = f"{PATH}/{client.resolve(PATH, job)}/result"
        with client.streamed(path, {"attempt": attempt} if attempt is not None else None) as response:
            body = response.read()
    if output is not None:
        write_new(output, body)
        note(f"{len(body)} bytes in {output}")
    elif sys.stdout.isatty():
        for line in body.decode(errors="replace").splitlines():
            print(visible(line))
    else:
        sys.stdout.buffer.write(body)


def write_new(path: Path, body: bytes) -> None:
    """Writes a file that must not be there yet.

    Raises:
        CommandError: it is there, or cannot be written.
    """
    try:
        with path.open("xb") as file:
            file.write(body)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", ExitCode.USAGE) from error
