"""Counters under every order and portion of events."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from runlane.events import BusEvent, Envelope
from runlane.statistics import COUNTED, Cell, count, touched
from runlane.tools.vulnerabilities import Severity

EVENTS = st.builds(
    lambda number, name, workspace, hours, severity: BusEvent(
        Envelope(
            UUID(int=number),
            name,
            UUID(int=workspace),
            "x/1",
            {
                "severity": severity,
                **dict.fromkeys(("target_id", "asset_id", "run_id"), str(UUID(int=number))),
            },
        ),
        number + 1,
        datetime(2026, 12, 1, tzinfo=UTC) + timedelta(hours=hours),
    ),
    st.integers(0, 2**64),
    st.sampled_from(sorted(COUNTED)),
    st.integers(1, 3),
    st.integers(0, 100),
    st.sampled_from(list(Severity)),
)


@given(st.lists(EVENTS, max_size=50), st.randoms(use_true_random=False), st.integers(1, 10))
def test_neither_order_nor_portions_of_events_change_what_they_add_up_to(
    events: list[BusEvent], random: Random, portion: int
) -> None:
    shuffled = random.sample(events, len(events))
    portions = [shuffled[start : start + portion] for start in range(0, len(shuffled), portion)]

    added: Counter[Cell] = Counter()
    for each in portions:
        added += count(each)

    assert added == count(events)
    assert sum(added.values()) == len(events)
    for kind in range(3):
        assert touched(events)[kind] == set().union(*(touched(each)[kind] for each in portions))
