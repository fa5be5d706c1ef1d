"""Lists of the API, printed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runlane.cli.output import Column, note, print_json, print_rows
from runlane.cli.profile import open_client

if TYPE_CHECKING:
    from runlane.cli.client import Query


def print_list(
    path: str,
    columns: Sequence[Column],
    *,
    limit: int,
    sort: str | None,
    as_json: bool,
    query: "Query | None" = None,
) -> None:
    """Prints up to `limit` rows of a list and says when there are more. JSON: `{"items": […]}`, one line."""
    asked: dict[str, str | int | list[str]] = dict(query or {})
    if sort:
        asked["sort"] = sort
    with open_client() as client:
        rows: list[Mapping[str, object]] = list(client.items(path, asked, limit + 1))
    shown = rows[:limit]
    if as_json:
        print_json({"items": shown})
    else:
        print_rows(shown, columns)
    if len(rows) > limit:
        note(f"{limit} shown, there are more: --limit")
