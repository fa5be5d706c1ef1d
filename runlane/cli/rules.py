"""Rules of a workspace, or with a platform key of all: limits, rates, exclusions, connectors."""

from collections.abc import Sequence
from dataclasses import dataclass

from runlane.cli.lists import print_all
from runlane.cli.output import Column
from runlane.cli.profile import open_client


@dataclass(frozen=True, slots=True)
class Rules:
    """A kind of rules, as the API calls it, and how a list of them is printed."""

    kind: str
    columns: Sequence[Column]

    def path(self, everywhere: bool) -> str:
        """Where the API has those of the workspace, or of the platform."""
        return f"/v1/platform/{self.kind}" if everywhere else f"/v1/{self.kind}"

    def print(self, everywhere: bool, *, as_json: bool) -> None:
        """Prints all of them."""
        with open_client() as client:
            found = client.get(self.path(everywhere))
        print_all(found, self.columns, as_json=as_json)
