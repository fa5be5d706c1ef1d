"""A lane in strict order: what is pending is read before what is new, and the first failure stops it.

The checkpoint is the last event that was handled, so order holds until an event has failed five times and is
dead-lettered. Source: Event bridge, Delivery guarantees, Ordering.
"""

from dataclasses import dataclass

from lanes import turns
from lanes.arrivals import NOWHERE, arrive, unbroken
from lanes.letters import CRASHED, describe
from lanes.sink import Sink
from lanes.tally import Tally
from lanes.turns import Done, LaneLoop
from runlane.db import lanes
from runlane.db.lanes import Position
from runlane.db.pool import Connection
from runlane.stream import LaneReader


@dataclass(frozen=True, slots=True)
class _Failure:
    """How the last attempt that began with this event went wrong."""

    sequence: int | None
    error: str


class OrderedLoop(LaneLoop):
    """One instance of an ordered lane."""

    def __init__(self, sink: Sink, conn: Connection, reader: LaneReader, tally: Tally) -> None:
        super().__init__(sink, conn, reader, tally)
        self._failure: _Failure | None = None

    async def _attend(self, at: Position) -> Done:
        """Handles what follows the checkpoint without a gap."""
        entries = await self._reader.read_pending(turns.BATCH)
        entries = entries or await self._reader.read_new(turns.BATCH, turns.BLOCK)
        arrivals = [arrive(entry, self._wants) for entry in entries]
        old = [arrival for arrival in arrivals if arrival.sequence <= at.last_seq]
        fresh = [arrival for arrival in arrivals if arrival.sequence > at.last_seq]
        await self._letters.reject([arrival for arrival in old if arrival.sequence == NOWHERE])
        if not fresh:
            done = await self._idle(at)
        elif fresh[0].sequence > at.last_seq + 1:
            done = await self._heal(at, fresh[0].sequence - 1)
        else:
            done = await self._hand_in_order(at, unbroken(fresh))
        return Done(old + done.arrivals, done.attempted)

    async def _move(self, at: Position, to: lanes.Advance) -> None:
        await lanes.advance(self._conn, self._lane, to, read_seq=to.last_seq)

    def _blamed(self, error: Exception) -> None:
        self._failure = _Failure(self._attempt.first, describe(error))

    def _last_error(self, sequence: int) -> str:
        failure = self._failure
        return failure.error if failure and failure.sequence == sequence else CRASHED
