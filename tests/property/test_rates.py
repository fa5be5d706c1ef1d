"""Rates: shares never exceed what there is, nothing is left lying while somebody waits, and pace is kept."""

from collections.abc import Hashable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runlane.rates import MAX_RATE, MOST_SHARES, PACED, SILENT, USEFUL_PER_S, Division, Rate, Spacing
from runlane.tools import TOOLS

RATES = st.integers(1, 2_000) | st.integers(1, MAX_RATE)
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)


@given(st.dictionaries(st.sampled_from("abc"), RATES), st.lists(KEYS, max_size=60))
def test_shares_never_add_up_to_more_than_any_rate_that_covers_them(
    rates: dict[str, int], jobs: list[list[str]]
) -> None:
    division = Division(dict[Hashable, Rate]({key: Rate(rate) for key, rate in rates.items()}))

    given_out = [(keys, division.give(keys)) for keys in jobs]

    for key, rate in rates.items():
        assert sum(share or 0 for keys, share in given_out if key in keys) <= rate
    for keys, share in given_out:
        assert (share is None) == (not rates.keys() & set(keys))
        assert share is None or share == 0 or share >= 1


@given(st.dictionaries(st.sampled_from("abc"), RATES, min_size=1), st.lists(KEYS, max_size=60))
def test_job_waits_only_while_something_that_covers_it_is_given_out(
    rates: dict[str, int], jobs: list[list[str]]
) -> None:
    held: dict[Hashable, Rate] = {key: Rate(rate) for key, rate in rates.items()}
    division = Division(held)

    for keys in jobs:
        share = division.give(keys)
        is_full = any(held[key].left == 0 for key in keys if key in held)
        assert share != 0 or is_full
        assert set(division.full()) == {key for key, rate in held.items() if rate.used >= rate.per_second}


@given(RATES, st.integers(1, 2_000))
def test_job_is_given_what_it_needs_or_the_whole_rate_and_waits_only_for_others(rate: int, need: int) -> None:
    division = Division({"a": Rate(rate)}, need)

    shares = []
    while share := division.give(["a"]):
        shares.append(share)

    assert shares
    assert all(share >= min(need, rate) for share in shares)
    assert rate - sum(shares) < min(need, rate)
    assert division.full() == ["a"]


@given(RATES)
def test_one_rate_goes_to_few_jobs_at_once_and_wholly(rate: int) -> None:
    division = Division({"a": Rate(rate)})

    shares = []
    while share := division.give(["a"]):
        shares.append(share)

    assert sum(shares) == rate
    assert len(shares) <= max(MOST_SHARES, -(-rate // USEFUL_PER_S))
    assert len(shares) <= MOST_SHARES or rate < MOST_SHARES * USEFUL_PER_S


@given(st.floats(0.5, 10_000), st.lists(st.floats(0, 0.5), min_size=2, max_size=80))
def test_moments_of_one_job_are_never_closer_than_its_rate_allows(rate: float, pauses: list[float]) -> None:
    spacing, now = Spacing(rate), 0.0
    moments = []

    for pause in pauses:
        now += pause
        moments.append(now + spacing.wait_s(now))

    apart = [later - earlier for earlier, later in pairwise(moments)]
    assert all(each >= 1 / rate - 1e-6 for each in apart)
    assert moments[0] == pauses[0]


def test_every_tool_keeps_to_a_rate_sends_nothing_or_is_known_not_to() -> None:
    assert not PACED & SILENT
    assert set(TOOLS) - PACED - SILENT == {"screenshot"}
