"""`runlane lane …`: how the consumers of the bus are."""

import typer

from runlane.cli.answers import objects_in
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, note, print_done, print_json, print_rows
from runlane.cli.profile import open_client

app = typer.Typer(no_args_is_help=True, help="Lanes: the consumers of the event bus.")

COLUMNS = (
    Column("LANE", "lane"), Column("HEALTH", "health"), Column("BEHIND", "lag_events"),
    Column("SECONDS", "lag_s"), Column("PENDING", "pending"), Column("DEAD LETTERS", "dead_letters"),
    Column("ACKED", "acked"), Column("SKIPPED", "skipped"), Column("FAILED", "failed"),
    Column("LOST", "lost"), Column("LAST ERROR", "last_error"),
)  # fmt: skip


@app.command("status")
def status(as_json: JsonFlag = False) -> None:
    """Show how far each lane is behind the bus, and how it fares; needs a platform key."""
    with open_client() as client:
        found = client.get("/v1/platform/lanes")
    if as_json:
        print_json(found)
        return
    print_rows(objects_in(found, "lanes"), COLUMNS)
    note(f"the bus is at {found['last_seq']}, {found['unpublished']} events are not on the stream yet")


@app.command("rebuild")
def rebuild(as_json: JsonFlag = False) -> None:
    """Have the summaries of all targets counted anew from the inventory; needs a platform key."""
    with open_client() as client:
        done = client.post("/v1/platform/summaries/rebuild", {})
    print_done(done, f"{done['marked']} summaries are counted anew", as_json=as_json)
