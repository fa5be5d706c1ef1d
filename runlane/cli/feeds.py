"""`runlane event tail` and `runlane notification tail`: what comes, as it comes."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag
from runlane.cli.output import note, print_json
from runlane.cli.profile import open_client
from runlane.cli.text import visible

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only these types, or what begins so; may be repeated.")
]
Least = Annotated[str, typer.Option("--severity", help="Only at least: info, low, medium, high, critical.")]
Since = Annotated[
    str | None, typer.Option("--after", help="Go on behind this id, as an earlier tail has printed it.")
]

_AGAIN_S: Final = 3.0


@dataclass(slots=True)
class Tail:
    """A stream that is followed, over broken connections."""

    path: str
    types: list[str]
    least: str
    last_id: str | None
    as_json: bool


def register(events: typer.Typer) -> None:
    """Adds the tail of events to its group."""
    events.command("tail")(tail_events)


def tail_events(
    types: Types = None, severity: Least = "none", after: Since = None, as_json: JsonFlag = False
) -> None:
    """Follow the events of the workspace. Ctrl-C ends it; what is missed meanwhile is made up for."""
    follow(Tail("/v1/events/stream", types or [], severity, after, as_json))


def tail_notifications(
    types: Types = None, severity: Least = "none", after: Since = None, as_json: JsonFlag = False
) -> None:
    """Follow your notifications. Ctrl-C ends it; what is missed meanwhile is made up for."""
    follow(Tail("/v1/notifications/stream", types or [], severity, after, as_json))


def follow(tail: Tail) -> None:
    """Prints what comes until Ctrl-C, and comes back when the connection breaks.

    Raises:
        CommandError: the API refuses.
    """
    try:
        with open_client() as client:
            while True:
                try:
                    _read(client, tail)
                except CommandError as error:
                    if error.exit_code is not ExitCode.UNREACHABLE:
                        raise
                    note(error.message)
                time.sleep(_AGAIN_S)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _read(client: "ApiClient", tail: Tail) -> None:
    query: dict[str, str | int | list[str]] = {"type": tail.types, "severity": tail.least}
    if tail.last_id is not None:
        query["last_event_id"] = tail.last_id
    with client.streamed(tail.path, query) as response:
        for name, event_id, data in _events(response.iter_lines()):
            tail.last_id = event_id or tail.last_id
            if name:
                _show(tail, name, json.loads(data))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Name, id and data of each event of a stream."""
    found = {"event": "", "id": "", "data": ""}
    for line in lines:
        name, _, value = line.partition(": ")
        if name in found:
            found[name] = value
        elif not line:
            yield found["event"], found["id"], found["data"]
            found = {"event": "", "id": "", "data": ""}


def _show(tail: Tail, name: str, data: dict[str, object]) -> None:
    if tail.as_json:
        print_json({"event": name, "id": tail.last_id, "data": data})
    elif name == "resync":
        note("what came before is not all shown: see the list")
    elif name != "ready":
        when = data.get("occurred_at") or data.get("time")
        what = data.get("text") or data["type"]
        print(visible(f"{when}  {data['severity']}  {what}  {data['subject']}"), flush=True)
