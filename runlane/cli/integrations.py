"""`runlane integration …`: endpoints outside of the platform, and what is delivered to them."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from runlane.cli.answers import Json, objects_in
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.lists import Listing, print_list
from runlane.cli.named import find_named
from runlane.cli.options import JsonFlag, Limit, Reason, Sort
from runlane.cli.output import Column, note, print_done, print_fields, print_json, print_made, print_rows
from runlane.cli.profile import open_client

app = typer.Typer(
    no_args_is_help=True, help="Integrations: webhooks, chats and ticket systems told of events."
)

PATH: Final = "/v1/integrations"
DELIVERIES: Final = "/v1/deliveries"
TEST_S: Final = 60.0
LOOK_S: Final = 0.3
COLUMNS = (
    Column("ID", "id"), Column("KIND", "kind"), Column("NAME", "name"), Column("STATUS", "status"),
    Column("FAILURES", "failures"), Column("DELIVERED", "delivered_at"), Column("EVENTS", "events"),
)  # fmt: skip
OF_DELIVERIES = (
    Column("ID", "id"), Column("TYPE", "type"), Column("EVENTS", "events"), Column("STATE", "state"),
    Column("TRIES", "attempts"), Column("STATUS", "status"), Column("ERROR", "error"),
    Column("CREATED", "created_at"),
)  # fmt: skip
OF_TRIES = (
    Column("TRY", "attempt"), Column("ANSWER", "answer"), Column("STATUS", "status"),
    Column("MS", "duration_ms"), Column("ERROR", "error"), Column("SAID", "excerpt"),
)  # fmt: skip

Integration = Annotated[str, typer.Argument(metavar="INTEGRATION", help="Name or id of one, or @last.")]
Delivery = Annotated[str, typer.Argument(metavar="DELIVERY", help="Id of a delivery.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value of its configuration; repeatable. JSON is JSON.")
]
SecretsFile = Annotated[
    Path | None,
    typer.Option("--secrets", help="JSON file of its secrets by name; -: standard input. Never an argument."),
]
Events = Annotated[
    list[str] | None, typer.Option("--event", help="A type, or a domain as asset.*; repeatable. None: all.")
]
Severity = Annotated[
    str | None,
    typer.Option("--severity", help="Only this severity or worse: info, low, medium, high, critical."),
]


@app.command("add")
def add(
    kind: Annotated[str, typer.Argument(help="webhook, slack, telegram, github, jira or linear.")],
    name: str,
    settings: Settings = None,
    secrets: SecretsFile = None,
    event: Events = None,
    severity: Severity = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="In order: a failure holds up what comes after.")
    ] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Connect one. A webhook's signing key is printed once, and never again."""
    body: Json = {"kind": kind, "name": name, "config": _config(settings), "is_ordered": ordered}
    body |= {"secrets": _secrets(secrets), "events": list(event or ()), "reason": reason}
    body |= {"least_severity": severity} if severity else {}
    with open_client() as client:
        made = client.post(PATH, body)
    value = made["signing_key"] or made["id"]
    print_made(made, value, f"next: runlane integration test {name}", as_json=as_json)


@app.command("list")
def index(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List integrations."""
    print_list(Listing(PATH, COLUMNS, limit, sort, as_json))


@app.command("show")
def show(integration: Integration, as_json: JsonFlag = False) -> None:
    """Show one, and how it is."""
    with open_client() as client:
        found = client.get(f"{PATH}/{find_named(client, PATH, integration)}")
    if as_json:
        print_json(found)
    else:
        print_fields([(key.replace("_", " ").upper(), value) for key, value in found.items()])


@app.command("set")
def edit(
    integration: Integration,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    settings: Settings = None,
    secrets: SecretsFile = None,
    event: Events = None,
    severity: Severity = None,
    ordered: Annotated[bool | None, typer.Option("--ordered/--not-ordered")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Change one: what is named here takes the place of what it has."""
    given: Json = {"name": name, "least_severity": severity, "is_ordered": ordered, "events": event or None}
    given |= {"config": _config(settings) or None, "secrets": _secrets(secrets) if secrets else None}
    wanted = {key: value for key, value in given.items() if value is not None}
    with open_client() as client:
        done = client.patch(f"{PATH}/{find_named(client, PATH, integration)}", wanted)
    print_done(done, f"changed {done['name']}", as_json=as_json)


@app.command("remove")
def remove(integration: Integration, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Disconnect one: its secrets are removed, what was still to be delivered is skipped."""
    done = _act(integration, "delete", {"reason": reason})
    print_done(done, f"disconnected {done['name']}", as_json=as_json)


@app.command("enable")
def enable(integration: Integration, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Switch one on: it gets one delivery at a time until it accepts one."""
    done = _act(integration, "enable", {"reason": reason})
    print_done(done, f"enabled {done['name']}", as_json=as_json)


@app.command("disable")
def disable(integration: Integration, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Switch one off: what it would get is noted as skipped."""
    done = _act(integration, "disable", {"reason": reason})
    print_done(done, f"disabled {done['name']}", as_json=as_json)


@app.command("rotate")
def rotate(integration: Integration, as_json: JsonFlag = False) -> None:
    """Give a webhook another key to sign with, printed once; the one before signs along for 24 hours."""
    done = _act(integration, "rotate", {})
    print_made(done, done["signing_key"], "the key before signs along for 24 hours", as_json=as_json)


@app.command("test")
def send_test(integration: Integration, as_json: JsonFlag = False) -> None:
    """Send a test, which is no event, and wait for what becomes of it."""
    with open_client() as client:
        sent = client.post(f"{PATH}/{find_named(client, PATH, integration)}/test", {})
        gives_up_at = time.monotonic() + TEST_S
        done = client.get(f"{DELIVERIES}/{sent['id']}")
        while done["state"] == "pending" and time.monotonic() < gives_up_at:
            time.sleep(LOOK_S)
            done = client.get(f"{DELIVERIES}/{sent['id']}")
    print_done(done, f"{done['state']}: {done['error'] or done['status']}", as_json=as_json)
    if done["state"] != "delivered":
        raise CommandError("the test was not accepted", ExitCode.CHECK_FAILED)


@app.command("deliveries")
def deliveries(integration: Integration, limit: Limit = 50, as_json: JsonFlag = False) -> None:
    """List what was delivered to one, or is to be, the newest first."""
    with open_client() as client:
        path = f"{PATH}/{find_named(client, PATH, integration)}/deliveries"
    print_list(Listing(path, OF_DELIVERIES, limit, None, as_json))


@app.command("delivery")
def delivery(delivery: Delivery, as_json: JsonFlag = False) -> None:
    """Show one delivery, and how each attempt at it went."""
    with open_client() as client:
        found = client.get(f"{DELIVERIES}/{delivery}")
    if as_json:
        print_json(found)
        return
    shown = ("id", "type", "subject", "state", "events", "error", "ticket", "due_at", "body")
    print_fields([(key.upper(), found[key]) for key in shown])
    print_rows(objects_in(found, "tries"), OF_TRIES)


@app.command("replay")
def replay(
    integration: Integration,
    since: Annotated[str, typer.Option("--since", help="Time from which on, as 2026-12-01T00:00Z.")],
    state: Annotated[
        str | None, typer.Option("--state", help="Only those: delivered, failed or skipped.")
    ] = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Deliver once more what was made since a time, a thousand at most, under the same ids."""
    done = _act(integration, "replay", {"since": since, "state": state, "reason": reason})
    more = "; there are more, repeat it once these are delivered" if done["has_more"] else ""
    print_done(done, f"{done['deliveries']} to be delivered once more{more}", as_json=as_json)


@app.command("redeliver")
def redeliver(delivery: Delivery, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Deliver one event once more, under the same id."""
    with open_client() as client:
        done = client.post(f"{DELIVERIES}/{delivery}/replay", {"reason": reason})
    print_made(done, done["id"], "to be delivered once more", as_json=as_json)


def _act(integration: str, act: str, body: Json) -> Json:
    with open_client() as client:
        return client.post(f"{PATH}/{find_named(client, PATH, integration)}/{act}", body)


def _config(settings: list[str] | None) -> Json:
    config: Json = {}
    for text in settings or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise CommandError(f"--set {text}: key=value is required", ExitCode.USAGE)
        try:
            config[key] = json.loads(value)
        except ValueError:
            config[key] = value
    return config


def _secrets(file: Path | None) -> Json:
    # arguments would stay in the history of the shell and in the list of processes
    if file is None:
        return {}
    if str(file) == "-" and sys.stdin.isatty():
        note('the secrets, as {"name": "value"}, then Ctrl-D:')
    try:
        found = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: no JSON can be read", ExitCode.USAGE) from error
    if not isinstance(found, dict):
        raise CommandError(f"{file}: an object of names and values is required", ExitCode.USAGE)
    return found
