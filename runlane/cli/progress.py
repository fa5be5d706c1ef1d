"""`runlane run progress`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json, as_object, objects_in
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, print_json, print_rows
from runlane.cli.profile import open_client
from runlane.cli.text import visible

PATH = "/v1/runs"
COLUMNS = (
    Column("STEP", "step_id"), Column("STATUS", "status"), Column("ENDED", "ended"), Column("JOBS", "total"),
    Column("FAILED", "jobs.failed"), Column("RUNNING", "jobs.in_progress"),
    Column("A MINUTE", "estimate.per_minute"), Column("LEFT", "left"),
)  # fmt: skip


def register(runs: typer.Typer) -> None:
    """Adds the command to its group."""
    runs.command("progress")(progress)


def progress(
    run: Annotated[str, typer.Argument(help="Id of a run, the end of one, or @last.")] = "@last",
    as_json: JsonFlag = False,
) -> None:
    """Show how far a run is and how long it takes yet."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, run)}/progress")
    if as_json:
        print_json(found)
        return
    print(f"run {found['run_id']} is {found['status']}: {found['ended']} of {found['total']} jobs ended")
    print(f"left: {_left(found)}")
    print_rows([step | {"left": _left(step)} for step in objects_in(found, "steps")], COLUMNS)


def _left(of: Json) -> str:
    estimate = as_object(of["estimate"])
    if estimate["left_s"] is None:
        return f"unknown: {visible(estimate['unknown'])}"
    return f"about {float(str(estimate['left_s'])):.0f} s"
