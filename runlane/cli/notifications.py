"""`runlane notification …`."""

from typing import Annotated, Final

import typer

from runlane.cli import feeds
from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_all, print_list
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, print_done
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Notifications: what you are told, and who is told what.")
rule_app = typer.Typer(no_args_is_help=True, help="Rules: who is told what.")
app.add_typer(rule_app, name="rule")
app.command("tail")(feeds.tail_notifications)

PATH: Final = "/v1/notifications"
COLUMNS = (
    Column("ID", "id"), Column("SEVERITY", "severity"), Column("TEXT", "text"), Column("EVENTS", "events"),
    Column("SUBJECT", "subject"), Column("WHEN", "occurred_at"), Column("READ", "read_at"),
)  # fmt: skip
RULE_COLUMNS = (
    Column("ID", "id"), Column("NAME", "name"), Column("TYPES", "types"), Column("AT LEAST", "severity"),
    Column("TARGET", "target_id"), Column("GROUP", "group_id"), Column("TELLS", "recipients"),
    Column("ON", "enabled"), Column("BY", "created_by"),
)  # fmt: skip
MUTE_COLUMNS = (
    Column("ID", "id"), Column("RULE", "rule"), Column("TYPE", "type"), Column("TARGET", "target_id"),
    Column("UNTIL", "until"), Column("BY", "created_by"), Column("REASON", "reason"),
)  # fmt: skip

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Notifications, by id.")]
Everything = Annotated[bool, typer.Option("--all", help="All of yours.")]
Target = Annotated[str | None, typer.Option("--target", help="Id of a target, the end of one, or @last.")]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="Types of events, or beginnings; may be repeated.")
]


@app.command("list")
def index(
    unread: Annotated[bool, typer.Option("--unread", help="Only those that are not read.")] = False,
    limit: Limit = 50,
    sort: Sort = None,
    as_json: JsonFlag = False,
) -> None:
    """List your notifications, the newest first."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json), {"unread": str(unread).lower()})


@app.command("count")
def count(as_json: JsonFlag = False) -> None:
    """Say how many of your notifications are unread."""
    with open_client() as client:
        found = client.get(f"{PATH}/count")
    print_done(found, f"{found['unread']} unread", as_json=as_json)


@app.command("read")
def read(ids: Ids = None, everything: Everything = False, as_json: JsonFlag = False) -> None:
    """Mark notifications as read."""
    _mark("read", ids, everything, as_json)


@app.command("unread")
def unread(ids: Ids = None, everything: Everything = False, as_json: JsonFlag = False) -> None:
    """Mark notifications as unread."""
    _mark("unread", ids, everything, as_json)


@app.command("mute")
def mute(
    rule: Annotated[str | None, typer.Option("--rule", help="Name of a rule.")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Type of events, or the beginning of one.")
    ] = None,
    target: Target = None,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=43_200, help="How long.")] = 60,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell nobody of one rule, type or target for a while."""
    body: Json = {"for_s": 60 * minutes, "reason": reason}
    body |= {name: value for name, value in (("rule", rule), ("type", event_type)) if value is not None}
    with open_client() as client:
        if target is not None:
            body["target_id"] = client.resolve("/v1/targets", target)
        done = client.post(f"{PATH}/mutes", body)
    print_done(done, f"mute {done['id']} until {done['until']}", as_json=as_json)


@app.command("mutes")
def mutes(as_json: JsonFlag = False) -> None:
    """List what is muted now."""
    with open_client() as client:
        found = client.get(f"{PATH}/mutes")
    print_all(found, MUTE_COLUMNS, as_json=as_json)


@app.command("unmute")
def unmute(
    mute_id: Annotated[str, typer.Argument(metavar="ID")], reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """End a mute before its time."""
    with open_client() as client:
        done = client.post(f"{PATH}/mutes/{mute_id}/remove", {"reason": reason})
    print_done(done, f"ended mute {done['id']}", as_json=as_json)


@rule_app.command("list")
def list_rules(as_json: JsonFlag = False) -> None:
    """List the rules of the workspace."""
    with open_client() as client:
        found = client.get(f"{PATH}/rules")
    print_all(found, RULE_COLUMNS, as_json=as_json)


@rule_app.command("set")
def set_rule(
    name: Annotated[str, typer.Argument(help="`default`: in place of the one that is there from the start.")],
    types: Types = None,
    severity: Annotated[str, typer.Option("--severity", help="At least this severe.")] = "medium",
    target: Target = None,
    group: Annotated[str | None, typer.Option("--group", help="Targets of this group: name or id.")] = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", help="Name of an API key; may be repeated. None: everybody.")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Keep the rule, but tell nobody by it.")] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Say who is told what. Replaces the rule of that name."""
    body: Json = {
        "name": name, "types": types or [], "severity": severity, "group": group, "recipients": to or [],
        "enabled": not off, "reason": reason,
    }  # fmt: skip
    with open_client() as client:
        if target is not None:
            body["target_id"] = client.resolve("/v1/targets", target)
        done = client.put(f"{PATH}/rules", body)
    print_done(done, f"rule {done['name']}", as_json=as_json)


@rule_app.command("remove")
def remove_rule(
    rule: Annotated[str, typer.Argument(help="Name or id.")], reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Remove a rule."""
    with open_client() as client:
        rows = objects_in(client.get(f"{PATH}/rules"), "items")
        found = [row["id"] for row in rows if rule in {row["name"], row["id"]} and row["id"]]
        if not found:
            hint = "runlane notification rule list"
            raise CommandError("there is no such rule", ExitCode.NOT_FOUND, hint=hint)
        done = client.post(f"{PATH}/rules/{found[0]}/remove", {"reason": reason})
    print_done(done, f"removed rule {done['name']}", as_json=as_json)


def _mark(how: str, ids: list[str] | None, everything: bool, as_json: bool) -> None:
    if everything == bool(ids):
        raise CommandError("say which, or --all", ExitCode.USAGE)
    body: Json = {"all": True} if everything else {"ids": ids}
    with open_client() as client:
        done = client.post(f"{PATH}/{how}", body)
    print_done(done, f"{done['changed']} changed", as_json=as_json)
