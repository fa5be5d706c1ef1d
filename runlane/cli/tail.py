"""`runlane job tail`."""

import json

import typer

from runlane.cli.errors import ExitCode
from runlane.cli.options import JsonFlag
from runlane.cli.output import note, print_json
from runlane.cli.profile import open_client
from runlane.cli.text import visible

PATH = "/v1/jobs"


def register(jobs: typer.Typer) -> None:
    """Adds the command to its group."""
    jobs.command("tail")(tail)


def tail(job: str, as_json: JsonFlag = False) -> None:
    """Follow what a job writes while it runs. Ctrl-C ends the look, not the job."""
    try:
        with open_client() as client:
            path = f"{PATH}/{client.resolve(PATH, job)}/tail"
            with client.streamed(path) as response:
                name = ""
                for line in response.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data":
                        _show(name, json.loads(value), as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _show(event: str, data: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json({"event": event, **data})
    elif event == "line":
        print(visible(data["text"]), flush=True)
    elif event == "state":
        note(f"{data['status']}, attempt {data['attempt']}")
