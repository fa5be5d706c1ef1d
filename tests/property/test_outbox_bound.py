"""The bound of the relay's looks never passes an event without a number, whoever commits when."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from runlane.db.outbox import Bound, Bus, Sequenced
from runlane.events import BusEvent, Envelope

EVENT = BusEvent(Envelope(UUID(int=1), "job.created", UUID(int=2), "job/1", {}), 1, datetime.now(UTC))

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "draw", "draw", "commit", "abort", "turn", "turn of a gap", "look"]),
        st.integers(0, 3),
    ),
    min_size=20,
    max_size=40,
)
"""What happens, and to which of those that run."""


@dataclass
class World:
    """Transactions that draw ids, and a relay that numbers what is committed."""

    bound: Bound = field(default_factory=Bound)
    next_id: int = 1
    next_transaction: int = 1
    drawn: dict[int, list[int]] = field(default_factory=dict)
    """Ids of each transaction that runs."""
    waiting: set[int] = field(default_factory=set)
    """Committed, without a number."""

    def run(self, act: str, which: int, limit: int) -> None:
        running = sorted(self.drawn)
        if act == "begin":
            self.drawn[self.next_transaction] = []
            self.next_transaction += 1
        elif act == "turn":
            self.look()
            self.number(limit)
        elif act == "turn of a gap":
            self.look()
            self.end(which, is_committed=True)
            self.number(limit)
        elif act == "look":
            self.look()
        elif running and act == "draw":
            self.drawn[running[which % len(running)]].append(self.next_id)
            self.next_id += 1
        elif running:
            self.end(which, is_committed=act == "commit")

    def end(self, which: int, *, is_committed: bool) -> None:
        running = sorted(self.drawn)
        if running:
            ids = self.drawn.pop(running[which % len(running)])
            self.waiting |= set(ids) if is_committed else set()

    def look(self) -> None:
        oldest = min(self.drawn, default=self.next_transaction)
        has_more = any(i > self.bound.last_id for i in self.waiting)
        self.bound.note_look(Bus(0, None, None, has_more, oldest, self.next_transaction))

    def number(self, limit: int) -> None:
        given_now = sorted(i for i in self.waiting if i > self.bound.last_id)[:limit]
        self.waiting -= set(given_now)
        self.bound.note_numbers(Sequenced(0, [EVENT] * len(given_now), max(given_now, default=0)), limit)


@given(acts=ACTS, limit=st.integers(1, 4))
def test_every_event_that_has_or_may_get_no_number_is_behind_the_bound(
    acts: list[tuple[str, int]], limit: int
) -> None:
    world = World()
    for act, which in acts:
        world.run(act, which, limit)

        unnumbered = world.waiting.union(*world.drawn.values())
        assert all(i > world.bound.last_id for i in unnumbered)


@given(acts=ACTS, limit=st.integers(1, 4))
def test_bound_follows_once_everybody_has_ended(acts: list[tuple[str, int]], limit: int) -> None:
    world = World()
    for act, which in acts:
        world.run(act, which, limit)
    while world.drawn:
        world.end(0, is_committed=True)
    newest = max(world.waiting, default=0)

    for _ in range(len(world.waiting) + 3):
        world.run("turn", 0, limit)

    assert not world.waiting
    assert world.bound.last_id >= newest
