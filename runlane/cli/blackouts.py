"""`runlane blackout …`."""

from typing import Annotated

import typer

from runlane.cli.answers import Json
from runlane.cli.lists import print_all
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Blackout windows: when nothing may begin.")

COLUMNS = (
    Column("ID", "id"), Column("TARGET", "target_id"), Column("GROUP", "group_id"), Column("TAG", "tag"),
    Column("POLICY", "policy"), Column("FROM", "starts_at"), Column("TO", "ends_at"),
    Column("DAYS", "weekdays"), Column("BEGINS", "begins"), Column("ENDS", "ends"),
    Column("ZONE", "time_zone"), Column("BY", "created_by"), Column("REASON", "reason"),
)  # fmt: skip

Target = Annotated[str | None, typer.Option("--target", help="Only for jobs of this target: its id.")]
Group = Annotated[str | None, typer.Option("--group", help="Only for targets of this group: name or id.")]
Tag = Annotated[str | None, typer.Option("--tag", help="Only for targets with this tag.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="What runs then is killed, and runs again later.")]


@app.command("list")
def index(as_json: JsonFlag = False) -> None:
    """List the blackout windows of the workspace."""
    with open_client() as client:
        found = client.get("/v1/blackouts")
    print_all(found, COLUMNS, as_json=as_json)


@app.command("once")
def once(
    starts_at: Annotated[str, typer.Argument(help="Such as 2026-12-24T18:00:00Z.")],
    ends_at: Annotated[str, typer.Argument()],
    target: Target = None,
    group: Group = None,
    tag: Tag = None,
    cancel: Cancel = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Let nothing begin from one moment to another; what runs is finished, or given back."""
    when: Json = {"starts_at": starts_at, "ends_at": ends_at, "reason": reason}
    _add(when | _about(target, group, tag, cancel), as_json)


@app.command("weekly")
def weekly(
    days: Annotated[str, typer.Argument(help="Days on which it opens, such as 1,2,3; 1 is Monday.")],
    begins: Annotated[str, typer.Argument(help="Such as 22:00.")],
    ends: Annotated[str, typer.Argument(help="Of the next day, when not later than it begins.")],
    zone: Annotated[str, typer.Option("--zone", help="Time zone, such as Europe/Berlin.")] = "UTC",
    target: Target = None,
    group: Group = None,
    tag: Tag = None,
    cancel: Cancel = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Let nothing begin at these hours of every week; what runs is finished, or given back."""
    window: Json = {"weekdays": days.split(","), "begins": begins, "ends": ends, "time_zone": zone}
    _add({"weekly": window, "reason": reason} | _about(target, group, tag, cancel), as_json)


@app.command("remove")
def remove(
    window_id: Annotated[str, typer.Argument(metavar="ID")], reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Remove a window; jobs that it held go on at once."""
    with open_client() as client:
        done = client.post(f"/v1/blackouts/{window_id}/remove", {"reason": reason})
    print_done(done, f"removed window {done['id']}", as_json=as_json)


def _about(target: str | None, group: str | None, tag: str | None, cancel: bool) -> Json:
    policy = "cancel" if cancel else "finish"
    return {"target_id": target, "group": group, "tag": tag, "policy": policy}


def _add(body: Json, as_json: bool) -> None:
    with open_client() as client:
        done = client.post("/v1/blackouts", body)
    print_done(done, f"window {done['id']}", as_json=as_json)
