"""What a lane does with events."""

from collections.abc import Sequence
from typing import Protocol

from runlane.db.pool import Connection
from runlane.events import BusEvent, Lane


class Sink(Protocol):
    """What a lane does with events. `handle` runs inside the turn's transaction and never commits.

    What it does must live in that transaction, or be harmless to repeat: after a failure or a crash an event
    comes again, and only the lane's inbox, which is in the same transaction, says what was done.
    """

    @property
    def lane(self) -> Lane:
        """The consumer group."""

    @property
    def is_ordered(self) -> bool:
        """Whether an event that fails holds up those after it, until it goes through or is dead-lettered.

        In other lanes it is set aside, and tried again when it has been idle for 30 seconds.
        """

    @property
    def from_oldest(self) -> bool:
        """Whether a lane that is new in an old installation begins with the oldest event that is kept.

        A lane that tells people or other systems begins with the next one.
        """

    def accepts(self, event_type: str) -> bool:
        """Whether the sink wants events of this type; the others only move the checkpoint."""

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Acts on events that the lane has not handled before, in the order of the bus."""
