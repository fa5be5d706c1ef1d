"""`runlane schedule …`: runs that are started by the clock."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json, texts_in
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done, print_fields, print_json, print_made
from runlane.cli.profile import open_client
from runlane.cli.runs import (
    Definition,
    Groups,
    Options,
    Tags,
    Targets,
    new_run,
    parse_options,
    read_definition,
    selection,
)

app = typer.Typer(no_args_is_help=True, help="Schedules: runs that are started by the clock.")

PATH: Final = "/v1/schedules"
COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("CRON", "spec.cron"),
    Column("EVERY S", "spec.every_s"), Column("ZONE", "spec.time_zone"), Column("NEXT", "next_fires"),
    Column("PAUSED", "paused_at"), Column("BY", "created_by"),
)  # fmt: skip
FIRE_COLUMNS = (
    Column("DUE", "due_at"), Column("OUTCOME", "outcome"), Column("RUN", "run_id"),
    Column("BY", "asked_by"), Column("REASON", "reason"),
)  # fmt: skip

ScheduleId = Annotated[str, typer.Argument(help="Name or id of a schedule, or @last.")]


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="For people; once in a workspace.")],
    target: Targets = None,
    group: Groups = None,
    tag: Tags = None,
    definition: Definition = "domain_discovery",
    cron: Annotated[
        str | None, typer.Option("--cron", help="Minute, hour, day of month, month, weekday; or @daily.")
    ] = None,
    every: Annotated[int | None, typer.Option("--every", min=60, help="Seconds between fires.")] = None,
    time_zone: Annotated[str, typer.Option("--time-zone", help="Such as Europe/Berlin.")] = "UTC",
    overlap: Annotated[str, typer.Option("--overlap", help="skip, buffer_one, cancel_other, allow")] = "skip",
    jitter: Annotated[int | None, typer.Option("--jitter", help="Seconds a fire is late at most.")] = None,
    catch_up: Annotated[
        int | None, typer.Option("--catch-up", help="Seconds for which a fire is made up for.")
    ] = None,
    ends_at: Annotated[str | None, typer.Option("--ends-at", help="A moment; no fire after it.")] = None,
    priority: Annotated[str, typer.Option("--priority", help="Of its runs.")] = "normal",
    options: Options = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a run of a definition on targets, time and again."""
    wanted = {"cron": cron, "every_s": every, "jitter_s": jitter, "catch_up_s": catch_up, "ends_at": ends_at}
    body: Json = {"name": name, "time_zone": time_zone, "overlap": overlap, "priority": priority}
    body |= {key: value for key, value in wanted.items() if value is not None}
    with open_client() as client:
        body |= new_run(definition, options) | selection(client, target, group, tag)
        made = client.post(PATH, body, once=True)
    _print(made, as_json)


@app.command("edit")
def edit(
    schedule: ScheduleId,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    target: Targets = None,
    group: Groups = None,
    tag: Tags = None,
    definition: Annotated[str | None, typer.Option("--definition", "-d", help="As for create.")] = None,
    cron: Annotated[str | None, typer.Option("--cron", help="In place of an interval, too.")] = None,
    every: Annotated[int | None, typer.Option("--every", min=60, help="In place of a cron, too.")] = None,
    time_zone: Annotated[str | None, typer.Option("--time-zone")] = None,
    overlap: Annotated[str | None, typer.Option("--overlap")] = None,
    jitter: Annotated[int | None, typer.Option("--jitter")] = None,
    catch_up: Annotated[int | None, typer.Option("--catch-up")] = None,
    ends_at: Annotated[str | None, typer.Option("--ends-at")] = None,
    priority: Annotated[str | None, typer.Option("--priority")] = None,
    options: Options = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what a schedule starts, when, or its name; what is not said stays. Its runs go on."""
    wanted = {
        "name": name, "cron": cron, "every_s": every, "time_zone": time_zone, "overlap": overlap,
        "jitter_s": jitter, "catch_up_s": catch_up, "ends_at": ends_at, "priority": priority,
    }  # fmt: skip
    body: Json = {key: value for key, value in wanted.items() if value is not None}
    if definition is not None:
        body["definition"] = read_definition(definition)
    if options:
        body["config"] = parse_options(options)
    with open_client() as client:
        if target or group or tag:
            body |= selection(client, target, group, tag)
        done = client.patch(f"{PATH}/{find_named(client, PATH, schedule)}", body)
    _print(done, as_json)


@app.command("run")
def run(schedule: ScheduleId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Fire a schedule now, also a paused one. What of an open run of it is up to its overlap."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, schedule)}/run"
        fired = client.post(path, {"reason": reason}, once=True)
    said = f"{fired['outcome']}: {fired['reason']}" if fired["reason"] else str(fired["outcome"])
    print_made(fired, fired["run_id"] or "", said, as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List schedules and when they fire next."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(schedule: ScheduleId = "@last", as_json: JsonFlag = False) -> None:
    """Show a schedule and when it fires next."""
    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, schedule)}")
    _print(found, as_json)


@app.command("fires")
def fires(
    schedule: ScheduleId = "@last", limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False
) -> None:
    """List what became of each fire: ran, skipped, buffered or missed, and why; the newest first."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, schedule)}/fires"
    print_list(Listing(path, FIRE_COLUMNS, limit, sort, as_json))


@app.command("pause")
def pause(schedule: ScheduleId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Let a schedule fire no more until it is resumed; its runs go on."""
    _act(schedule, "pause", reason, as_json=as_json)


@app.command("resume")
def resume(schedule: ScheduleId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Let a schedule fire again from now on."""
    _act(schedule, "resume", reason, as_json=as_json)


@app.command("delete")
def delete(schedule: ScheduleId, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Delete a schedule; its runs go on."""
    _act(schedule, "delete", reason, as_json=as_json)


def _act(schedule: str, action: str, reason: str | None, *, as_json: bool) -> None:
    with open_client() as client:
        done = client.post(f"{PATH}/{find_named(client, PATH, schedule)}/{action}", {"reason": reason})
    print_done(done, f"{action}: schedule {done['name']}", as_json=as_json)


def _print(found: Json, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    spec = found["spec"] if isinstance(found["spec"], dict) else {}
    shown = [("ID", found["id"]), ("NAME", found["name"])]
    shown += [(key.upper(), value) for key, value in spec.items() if value is not None]
    print_fields([*shown, ("PAUSED", found["paused_at"]), ("NEXT", ", ".join(texts_in(found, "next_fires")))])
