"""Things that a person calls by their names: saved definitions, groups, schedules."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient


def find_named(client: "ApiClient", path: str, text: str) -> str:
    """Turns a name, an id, the end of one or `@last` into an id; a name comes first.

    Raises:
        CommandError: nothing fits, or several do.
    """
    named = [str(row["id"]) for row in client.items(path, limit=1000) if row["name"] == text]
    return named[0] if named else client.resolve(path, text)
