"""`runlane step …`."""

from typing import Annotated

import typer

from runlane.cli.options import JsonFlag, PriorityName, Reason
from runlane.cli.output import print_done
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Steps of runs.")

RunId = Annotated[str, typer.Argument(help="Id of a run, the end of one, or @last.")]
StepId = Annotated[str, typer.Argument(help="Id of a step of that run.")]


@app.command("cancel")
def cancel(run: RunId, step: StepId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Cancel a step and its jobs that have not ended. Steps that need it are skipped. Final."""
    with open_client() as client:
        path = f"/v1/runs/{client.resolve('/v1/runs', run)}/steps/{step}/cancel"
        done = client.post(path, {"reason": reason})
    print_done(
        done,
        f"cancelled step {done['step_id']} of run {done['run_id']} with {done['jobs']} jobs",
        as_json=as_json,
    )


@app.command("priority")
def priority(
    run: RunId, step: StepId, name: PriorityName, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Give a step another priority, with its jobs that have not ended or are still to come."""
    with open_client() as client:
        path = f"/v1/runs/{client.resolve('/v1/runs', run)}/steps/{step}/priority"
        done = client.post(path, {"priority": name, "reason": reason})
    print_done(
        done, f"{done['jobs']} jobs have priority {name} now; {done['moved']} of them wait", as_json=as_json
    )
