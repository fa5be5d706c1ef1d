"""`runlane stats` and `runlane summary`."""

from typing import Annotated, Final

import typer

from runlane.cli.answers import Json, as_object, counts_in
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, print_fields, print_json
from runlane.cli.profile import open_client

COLUMNS: Final = (Column("METRIC", "metric"), Column("SINCE", "since"), Column("VALUE", "value"))


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("stats")(stats)
    app.command("summary")(summary)


def stats(
    metrics: Annotated[
        list[str] | None, typer.Argument(metavar="[METRIC]…", help="Or beginnings: findings, jobs.failed …")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="How many days.")] = 30,
    until: Annotated[
        str | None, typer.Option("--until", help="The last of them, 2026-12-01 (UTC); by default today.")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="day, week or month")] = "day",
    as_json: JsonFlag = False,
) -> None:
    """List what was counted on each day, week or month; nothing for a time in which nothing was."""
    query: dict[str, str | int | list[str]] = {"days": days, "by": by}
    query |= {"metric": metrics} if metrics else {}
    query |= {"until": until} if until else {}
    with open_client() as client:
        found = client.get("/v1/statistics", query)
    print_all(found, COLUMNS, as_json=as_json)


def summary(
    target: Annotated[
        str | None, typer.Argument(help="Id of a target, the end of one, or @last; none: the workspace.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is known of a target, or of the workspace: live assets, open findings, the last run."""
    with open_client() as client:
        path = "/v1/workspace/summary"
        if target is not None:
            path = f"/v1/targets/{client.resolve('/v1/targets', target)}/summary"
        found = client.get(path)
    if as_json:
        print_json(found)
    else:
        print_fields(_shown(found))


def _shown(found: Json) -> list[tuple[str, object]]:
    names = ("value", "targets", "assets", "ports", "services")
    pairs = [(name, found[name]) for name in names if name in found]
    pairs += [(f"{severity} findings", count) for severity, count in counts_in(found, "findings").items()]
    if found.get("last_run"):
        run = as_object(found["last_run"])
        pairs += [("last run", f"{run['run_id']} {run['status']}")]
    pairs += [("completed", found["scanned_at"]), ("out of date since", found["stale_since"])]
    return pairs + list(counts_in(found, "today").items() if "today" in found else ())
