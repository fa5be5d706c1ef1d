"""`runlane job why`, `runlane job waiting` and `runlane run why`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json, as_object, objects_in
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, print_json, print_rows
from runlane.cli.profile import open_client
from runlane.cli.text import visible

JOBS = "/v1/jobs"
RUNS = "/v1/runs"
COLUMNS = (
    Column("STEP", "step_id"), Column("STATUS", "status"), Column("JOBS", "jobs"),
    Column("REASON", "reason"), Column("BECAUSE", "text"),
)  # fmt: skip
HEADS = (
    Column("TOOL SET", "toolset"), Column("PRIORITY", "priority"), Column("SINCE", "since"),
    Column("SECONDS", "waited_s"), Column("JOB", "job_id"), Column("RUN", "run_id"),
    Column("STEP", "step_id"),
)  # fmt: skip


def register(jobs: typer.Typer, runs: typer.Typer) -> None:
    """Adds the commands to their groups."""
    jobs.command("why")(why_job)
    jobs.command("waiting")(waiting)
    runs.command("why")(why_run)


def why_job(job: str, as_json: JsonFlag = False) -> None:
    """Say why a job is pending, by id or the end of it."""
    with open_client() as client:
        found = client.get(f"{JOBS}/{client.resolve(JOBS, job)}/why")
    if as_json:
        print_json(found)
        return
    print(f"job {found['job_id']} ({visible(found['step_id'])}) is {found['status']}")
    print(f"because: {visible(found['text'])}")
    if found["explanation"] is not None:
        for check in objects_in(as_object(found["explanation"]), "checks"):
            print(f"  {'✗' if check['is_holding'] else '✓'} {check['reason']:<18} {visible(check['text'])}")


def waiting(as_json: JsonFlag = False) -> None:
    """Say which job has waited longest, for each tool set and priority."""
    with open_client() as client:
        found = client.get("/v1/waiting")
    print_all(found, HEADS, as_json=as_json)


def why_run(
    run: Annotated[str, typer.Argument(help="Id of a run, the end of one, or @last.")] = "@last",
    step: Annotated[str | None, typer.Option("--step", help="Only of this step.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what the pending jobs of a run wait for."""
    with open_client() as client:
        query = {"step": step} if step is not None else None
        found = client.get(f"{RUNS}/{client.resolve(RUNS, run)}/why", query)
    if as_json:
        print_json(found)
    else:
        print_rows([row for step_why in objects_in(found, "steps") for row in _rows(step_why)], COLUMNS)


def _rows(step: Json) -> list[Json]:
    return [
        {"step_id": step["step_id"], "status": step["status"], "jobs": group["jobs"]}
        | {key: as_object(group["explanation"])[key] for key in ("reason", "text")}
        for group in objects_in(step, "groups")
    ]
