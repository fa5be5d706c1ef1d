"""What a lane gives up: a row in the turn's transaction, and a copy on the dead-letter stream.

The copy is written before the commit, and once only: a turn that is rolled back gives the event up again.
"""

from datetime import UTC, datetime
from typing import Final

import structlog

from lanes.arrivals import Arrival
from lanes.tally import Tally
from runlane.db import dead_letters, lanes
from runlane.db.dead_letters import Failure, GivenUp
from runlane.db.pool import Connection
from runlane.events import BusEvent, scrub, scrub_text
from runlane.events.wire import format_time, to_fields
from runlane.stream import Fields, LaneReader, Letter
from runlane.tools.clean import clean_text

log = structlog.get_logger(__name__)

MAX_CAUSE: Final = 500
"""Characters that are kept of an error. Source: the limit of a letter's row."""

CRASHED: Final = "handling it ended the process"
"""Why an event was given up whose handling never came to an end."""

MAX_FIELDS: Final = 50
MAX_FIELD_BYTES: Final = 4_096
"""What is kept of an entry that somebody else has put on the stream."""


class Letters:
    """Gives events up in the name of a lane."""

    def __init__(self, conn: Connection, reader: LaneReader, lane: str, tally: Tally) -> None:
        self._conn = conn
        self._reader = reader
        self._lane = lane
        self._tally = tally

    async def give_up(self, event: BusEvent, entry_id: str | None, error: str, attempts: int) -> None:
        """Sets an event aside that failed for good; the lane has received it from now on."""
        sent, fields = event.envelope, to_fields(event)
        first_at = await self._reader.first_failure(event.sequence)
        given_up = GivenUp(
            self._lane, sent.workspace_id, sent.id, event.sequence, sent.type, sent.subject, fields, entry_id
        )
        await dead_letters.write(self._conn, given_up, Failure(attempts, error, first_at))
        now = datetime.now(UTC)
        notes = {
            "dlqerror": error,
            "dlqattempts": str(attempts),
            "dlqentry": entry_id or "",
            "dlqfirst": format_time(first_at or now),
            "dlqtime": format_time(now),
        }
        await self._reader.dead_letter(Letter(sent.workspace_id, key_of(self._lane, sent.id), fields, notes))
        await lanes.receive(self._conn, self._lane, [sent.id])
        self._tally.counts["dead"] += 1
        log.error("event_dead_lettered", lane=self._lane, event_id=str(sent.id), type=sent.type, error=error)

    async def reject(self, arrivals: list[Arrival]) -> None:
        """Sets entries with a fault aside, where a person finds them: once, whoever meets them first."""
        for arrival in arrivals:
            if arrival.entry and arrival.fault:
                entry_id, fields = arrival.entry.id, _legible(arrival.entry.fields)
                await dead_letters.write_entry(
                    self._conn, self._lane, entry_id, fields, arrival.fault[:MAX_CAUSE]
                )
                notes = {"dlqerror": arrival.fault, "dlqtime": format_time(datetime.now(UTC))}
                await self._reader.dead_letter(Letter(None, entry_id, fields, notes))
                log.warning("entry_unroutable", lane=self._lane, entry_id=entry_id, fault=arrival.fault)


def key_of(lane: str, event_id: object) -> str:
    """What names the letter of an event on its stream."""
    return f"{lane}/{event_id}"


def describe(error: Exception) -> str:
    """What is kept of an error: its kind and its text, without credentials, bounded."""
    return clean_text(scrub_text(f"{type(error).__name__}: {error}"), MAX_CAUSE)


def _legible(fields: Fields) -> dict[str, str]:
    """Fields of an entry from anywhere, bounded and without what looks like a credential."""
    texts = {
        clean_text(name.decode(errors="replace"), MAX_FIELD_BYTES): scrub_text(
            clean_text(value.decode(errors="replace"), MAX_FIELD_BYTES)
        )
        for name, value in list(fields.items())[:MAX_FIELDS]
    }
    return {name: str(text) for name, text in scrub(texts).items()}
