"""Entries of the stream as a lane meets them: wanted, unwanted, or not readable at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runlane.errors import Invalid
from runlane.events import BusEvent, find_leaf
from runlane.events.wire import decode, sequence_of
from runlane.stream import Entry

NOWHERE: Final = 0
"""Sequence of an entry that has no place on the bus."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event on its way through a turn. `event` is None when the sink does not want it, or cannot read it:
    then `fault` says why. `entry` is None when it was read from the outbox."""

    sequence: int
    event: BusEvent | None = None
    entry: Entry | None = None
    fault: str | None = None

    @property
    def outcome(self) -> str:
        """What it counts as once the turn is over."""
        if self.fault:
            return "unknown"
        return "acked" if self.event else "skipped"

    @property
    def is_ghost(self) -> bool:
        """Whether the entry was trimmed while it was pending: nothing of it is left but its id."""
        return self.entry is not None and not self.entry.fields


def arrive(entry: Entry, wants: Callable[[str], bool]) -> Arrival:
    """Looks at an entry; its data is read only if it is wanted. Never raises."""
    if not entry.fields:
        return Arrival(NOWHERE, entry=entry)
    sequence = sequence_of(entry.fields)
    if sequence is None:
        return Arrival(NOWHERE, entry=entry, fault="no sequence")
    name = entry.fields.get(b"type", b"").decode(errors="replace")
    if find_leaf(name) is None:
        return Arrival(sequence, entry=entry, fault="not in the catalog")
    if b"workspaceid" not in entry.fields:
        return Arrival(sequence, entry=entry, fault="no workspace")
    if not wants(name):
        return Arrival(sequence, entry=entry)
    try:
        return Arrival(sequence, decode(entry.fields), entry)
    except Invalid as error:
        return Arrival(sequence, entry=entry, fault=error.detail)


def unbroken(arrivals: list[Arrival]) -> list[Arrival]:
    """The longest start of `arrivals` that goes in steps of one."""
    for at in range(1, len(arrivals)):
        if arrivals[at].sequence != arrivals[at - 1].sequence + 1:
            return arrivals[:at]
    return arrivals
