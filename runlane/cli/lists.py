"""Lists of the API, printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runlane.cli.answers import objects_in
from runlane.cli.output import Column, note, print_json, print_rows
from runlane.cli.profile import open_client

if TYPE_CHECKING:
    from runlane.cli.client import Query


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of the API, and how a person asked for it."""

    path: str
    columns: Sequence[Column]
    limit: int
    sort: str | None
    as_json: bool


def print_list(listing: Listing, query: "Query | None" = None) -> None:
    """Prints up to `limit` rows and says when there are more. JSON: `{"items": […]}`, one line."""
    asked: dict[str, str | int | list[str]] = dict(query or {})
    if listing.sort:
        asked["sort"] = listing.sort
    with open_client() as client:
        rows: list[Mapping[str, object]] = list(client.items(listing.path, asked, listing.limit + 1))
    shown = rows[: listing.limit]
    if listing.as_json:
        print_json({"items": shown})
    else:
        print_rows(shown, listing.columns)
    if len(rows) > listing.limit:
        note(f"{listing.limit} shown, there are more: --limit")


def print_all(found: Mapping[str, object], columns: Sequence[Column], *, as_json: bool) -> None:
    """Prints a whole list as the API has answered it."""
    if as_json:
        print_json(found)
    else:
        print_rows(objects_in(found, "items"), columns)
