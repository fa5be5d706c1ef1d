"""`runlane run …`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, PriorityName, Reason, Sort
from runlane.cli.output import Column, note, print_done, print_fields, print_json, print_made, print_rows
from runlane.cli.profile import open_client
from runlane.cli.text import moment

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

app = typer.Typer(no_args_is_help=True, help="Runs: start them, watch them, end them.")

PATH = "/v1/runs"
COLUMNS = (
    Column("ID", "id"), Column("RUN", "name"), Column("STATUS", "status"), Column("CREATED", "created_at"),
    Column("CLOSED", "closed_at"), Column("BLOCKED BY", "blocked_reason"),
)  # fmt: skip
STEP_COLUMNS = (
    Column("STEP", "step_id"), Column("TOOL", "tool_id"), Column("STATUS", "status"),
    Column("PENDING", "jobs.pending"), Column("RUNNING", "jobs.in_progress"),
    Column("DONE", "jobs.completed"), Column("FAILED", "jobs.failed"), Column("NEEDS", "needs"),
)  # fmt: skip

RunId = Annotated[str, typer.Argument(help="Id of a run, the end of one, or @last.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0, help="Seconds to watch at most.")]


Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", help="Target: value, id, or the end of an id. May be repeated."),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="All targets of this group: name or id. Repeatable.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="All targets with this tag. Repeatable.")]
Definition = Annotated[
    str,
    typer.Option(
        "--definition", "-d", help="Name of a saved or built-in definition, or @file (YAML or JSON)."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", help="Option of a step: step.option=value; step * is every step."),
]


@app.command("start")
def start(
    target: Targets = None,
    group: Groups = None,
    tag: Tags = None,
    definition: Definition = "domain_discovery",
    name: Annotated[str | None, typer.Option("--name", help="For people.")] = None,
    priority: Annotated[
        str, typer.Option("--priority", help="critical, high, normal, low, background")
    ] = "normal",
    options: Options = None,
    watch_it: Annotated[bool, typer.Option("--watch", help="Watch it to its end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a run on targets, groups and tags, in any mix."""
    with open_client() as client:
        body = new_run(definition, options) | selection(client, target, group, tag)
        body["priority"] = priority
        if name:
            body["name"] = name
        started = client.post(PATH, body, once=True)
    run_id = str(started["run_id"])
    if watch_it:
        watch(run_id, as_json=as_json)
    elif as_json:
        print_json(started)
    else:
        print(run_id)
        note("next: runlane run watch @last")


@app.command("watch")
def watch(run: RunId = "@last", timeout: Timeout = None, as_json: JsonFlag = False) -> None:
    """Watch a run to its end. Exit code 0: completed, 7: failed, 9: cancelled, 124: still going on."""
    from runlane.cli.watch import watch_run

    with open_client() as client:
        raise typer.Exit(watch_run(client, client.resolve(PATH, run), timeout_s=timeout, is_json=as_json))


@app.command("show")
def show(run: RunId = "@last", as_json: JsonFlag = False) -> None:
    """Show a run and its steps."""
    with open_client() as client:
        found = client.get(f"{PATH}/{client.resolve(PATH, run)}")
    if as_json:
        print_json(found)
        return
    print_fields([(column.heading, found[column.key]) for column in COLUMNS])
    print()
    print_rows(objects_in(found, "steps"), STEP_COLUMNS)


@app.command("list")
def index(
    status: Annotated[list[str] | None, typer.Option("--status", help="May be repeated.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="A part of the name.")] = None,
    started_by: Annotated[str | None, typer.Option("--by", help="Name of whoever started it.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Such as 24h, 7d, or a moment.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Likewise.")] = None,
    limit: Limit = 50,
    sort: Sort = None,
    as_json: JsonFlag = False,
) -> None:
    """List runs, the newest first."""
    query: dict[str, str | int | list[str]] = {"status": status or []}
    wanted = {"kind": kind, "name": name, "started_by": started_by}
    wanted |= {"since": moment(since), "until": moment(until)}
    query |= {key: value for key, value in wanted.items() if value is not None}
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json), query)


@app.command("cancel")
def cancel(run: RunId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Cancel a run and everything in it that has not ended. Final."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, run)}/cancel", {"reason": reason})
    print_done(done, f"cancelled run {done['run_id']} with {done['jobs']} jobs", as_json=as_json)


@app.command("pause")
def pause(run: RunId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Dispatch nothing more of a run until it is resumed; what runs is finished."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, run)}/pause", {"reason": reason})
    print_done(done, f"paused run {done['run_id']}; next: runlane run resume", as_json=as_json)


@app.command("resume")
def resume(run: RunId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Let an open run go on: lift its pause, and start its workflow if it is gone. Else harmless."""
    with open_client() as client:
        done = client.post(f"{PATH}/{client.resolve(PATH, run)}/resume", {"reason": reason})
    print_done(done, f"run {done['run_id']} goes on ({done['status']})", as_json=as_json)


@app.command("priority")
def priority(run: RunId, name: PriorityName, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Give a run another priority, with its jobs that have not ended or are still to come."""
    with open_client() as client:
        path = f"{PATH}/{client.resolve(PATH, run)}/priority"
        done = client.post(path, {"priority": name, "reason": reason})
    print_done(
        done, f"{done['jobs']} jobs have priority {name} now; {done['moved']} of them wait", as_json=as_json
    )


@app.command("rerun")
def rerun(
    run: RunId,
    from_step: Annotated[
        str | None, typer.Option("--from", help="This step and all that needs it; default: the whole run.")
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Do a run once more, as a new run over the same scope."""
    with open_client() as client:
        path = f"{PATH}/{client.resolve(PATH, run)}/rerun"
        done = client.post(path, {"from_step": from_step, "reason": reason}, once=True)
    print_made(done, done["run_id"], "next: runlane run watch @last", as_json=as_json)


def new_run(definition: str, options: list[str] | None) -> Json:
    """What a person typed to say what is run."""
    return {"definition": read_definition(definition), "config": parse_options(options or [])}


def selection(
    client: "ApiClient", targets: list[str] | None, groups: list[str] | None, tags: list[str] | None
) -> Json:
    """What a person typed to say which targets.

    Raises:
        CommandError: nothing was said.
    """
    if not (targets or groups or tags):
        raise CommandError("say --target, --group or --tag", ExitCode.USAGE)
    found = [_target(client, each) for each in targets or []]
    return {"targets": found, "groups": groups or [], "tags": tags or []}


def parse_options(options: list[str]) -> dict[str, dict[str, object]]:
    """Reads `step.option=value`; a value that is JSON is taken as such, any other as text.

    Raises:
        CommandError: one has another form.
    """
    config: dict[str, dict[str, object]] = {}
    for text in options:
        path, equals, value = text.partition("=")
        step, dot, option = path.partition(".")
        if not (equals and dot and step and option):
            raise CommandError(f"--set takes step.option=value, not {text!r}", ExitCode.USAGE)
        try:
            config.setdefault(step, {})[option] = json.loads(value)
        except ValueError:
            config.setdefault(step, {})[option] = value
    return config


def read_definition(text: str) -> object:
    """The name of a definition, or what is in @file.

    Raises:
        CommandError: the file cannot be read.
    """
    if not text.startswith("@"):
        return text
    from runlane.definitions import load_definition

    try:
        source = Path(text[1:]).read_bytes()
    except OSError as error:
        raise CommandError(f"{text[1:]}: {error.strerror}", ExitCode.USAGE) from error
    return load_definition(source)


def _target(client: "ApiClient", text: str) -> str:
    rows = list(client.items("/v1/targets", {"value": text}, limit=2)) if "." in text or ":" in text else []
    if len(rows) > 1:
        raise CommandError(f"{text} is a target in several networks: say the id of one", ExitCode.USAGE)
    return str(rows[0]["id"]) if rows else client.resolve("/v1/targets", text)
