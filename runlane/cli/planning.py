"""`runlane run plan`."""

from typing import Annotated

import typer

from runlane.cli.answers import counts_in, objects_in
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, note, print_json, print_rows
from runlane.cli.profile import open_client
from runlane.cli.runs import PATH, Definition, Groups, Options, Tags, Targets, new_run, selection

COLUMNS = (
    Column("STEP", "step_id"), Column("TOOL", "tool_id"), Column("JOBS", "jobs"), Column("EXACT", "is_exact"),
    Column("SKIPPED", "left_out"), Column("QUEUE", "task_queue"), Column("SLOTS", "slots"),
    Column("MISSING", "missing"),
)  # fmt: skip


def register(runs: typer.Typer) -> None:
    """Adds the command to its group."""
    runs.command("plan")(plan)


def plan(
    target: Targets = None,
    group: Groups = None,
    tag: Tags = None,
    definition: Definition = "domain_discovery",
    options: Options = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 10 if something has no live worker.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what a run would do: jobs, task queues, live slots, what is missing. Nothing is written."""
    from runlane.cli.errors import ExitCode

    with open_client() as client:
        body = new_run(definition, options) | selection(client, target, group, tag)
        found = client.post(f"{PATH}?plan=true", body)
    if as_json:
        print_json(found)
    else:
        rows: list[dict[str, object]] = []
        for step in objects_in(found, "steps"):
            routes = objects_in(step, "routes") or [{"task_queue": None, "slots": None}]
            left_out = [f"{count} {reason}" for reason, count in counts_in(step, "skipped").items()]
            rows += [{**step, **route, "left_out": left_out or None} for route in routes]
        print_rows(rows, COLUMNS)
        note("jobs of steps that need others are what is known today")
    if strict and found["missing"]:
        raise typer.Exit(ExitCode.CHECK_FAILED)
