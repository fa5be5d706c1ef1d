"""`runlane asset|service|url|finding list` and `runlane worker list`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from runlane.cli.evidence import write_new
from runlane.cli.lists import Listing, print_list
from runlane.cli.options import JsonFlag, Limit, Sort
from runlane.cli.output import Column, note
from runlane.cli.processes import worker_app
from runlane.cli.profile import open_client

Target = Annotated[str | None, typer.Option("--target", help="Only of this target: id, or the end of it.")]
Severity = Annotated[list[str] | None, typer.Option("--severity", help="May be repeated.")]


@dataclass(frozen=True, slots=True)
class _List:
    path: str
    help: str
    columns: tuple[Column, ...]


_LISTS: Final = {
    "asset": _List(
        "/v1/assets",
        "Names and addresses that were found.",
        (Column("ASSET", "value"), Column("ADDRESSES", "addresses"), Column("LAST SEEN", "last_seen")),
    ),
    "service": _List(
        "/v1/services",
        "Open ports and what answers there.",
        (
            Column("HOST", "host"), Column("PORT", "port"), Column("URL", "url"), Column("STATUS", "status"),
            Column("TITLE", "title"), Column("SERVER", "server"), Column("BANNER", "banner"),
        ),
    ),
    "screenshot": _List(
        "/v1/screenshots",
        "Pictures of web services that runs have taken.",
        (
            Column("SCREENSHOT", "id"), Column("URL", "url"), Column("WIDTH", "width"),
            Column("HEIGHT", "height"), Column("TAKEN", "observed_at"),
        ),
    ),
    "url": _List(
        "/v1/urls",
        "URLs that were found.",
        (Column("URL", "url"), Column("STATUS", "status"), Column("TYPE", "content_type")),
    ),
}  # fmt: skip
_FINDINGS: Final = (
    Column("SEVERITY", "severity"), Column("CHECK", "check_id"), Column("URL", "url"),
    Column("STATUS", "status"), Column("LAST SEEN", "last_seen"),
)  # fmt: skip
_WORKERS: Final = (
    Column("ID", "id"), Column("WORKER", "name"), Column("STATUS", "status"), Column("NETWORK", "network_id"),
    Column("TOOL SETS", "toolsets"), Column("NOT POLLING", "not_polling"), Column("LAST BEAT", "beat_at"),
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Adds one group for each kind of thing that scans find."""
    for noun, what in _LISTS.items():
        group = typer.Typer(no_args_is_help=True, help=what.help)
        group.command("list", help=what.help)(_command(what))
        if noun == "screenshot":
            group.command("save")(save_screenshot)
        app.add_typer(group, name=noun)
    findings = typer.Typer(no_args_is_help=True, help="What is wrong, and where.")
    findings.command("list")(list_findings)
    app.add_typer(findings, name="finding")


def list_findings(
    target: Target = None,
    severity: Severity = None,
    limit: Limit = 50,
    sort: Sort = "-severity",
    as_json: JsonFlag = False,
) -> None:
    """List findings, the worst first."""
    query = _of_target(target)
    if severity:
        query["severity"] = severity
    print_list(Listing("/v1/findings", _FINDINGS, limit, sort, as_json), query)


def save_screenshot(
    screenshot: Annotated[str, typer.Argument(help="Its id, or the end of it.")],
    file: Annotated[Path, typer.Argument(help="A new file to write to.")],
) -> None:
    """Download a picture of a web service (PNG)."""
    with open_client() as client:
        path = f"/v1/screenshots/{client.resolve('/v1/screenshots', screenshot)}/image"
        with client.streamed(path) as response:
            body = response.read()
    write_new(file, body)
    note(f"{len(body)} bytes in {file}")


@worker_app.command("list")
def list_workers(limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
    """List the workspace's scan workers."""
    print_list(Listing("/v1/workers", _WORKERS, limit, sort, as_json))


def _command(what: _List) -> Callable[..., None]:
    def index(target: Target = None, limit: Limit = 50, sort: Sort = None, as_json: JsonFlag = False) -> None:
        print_list(Listing(what.path, what.columns, limit, sort, as_json), _of_target(target))

    return index


def _of_target(target: str | None) -> dict[str, str | int | list[str]]:
    if target is None:
        return {}
    with open_client() as client:
        return {"target": client.resolve("/v1/targets", target)}
