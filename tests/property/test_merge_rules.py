"""The pure rules of the merge: folding sightings, reading coverage."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runlane.db.inventory import MERGES, MergeJob
from runlane.db.inventory.coverage import (
    check_coverage,
    port_coverage,
    speaks_of_absence,
    url_coverage,
    zone_coverage,
)
from runlane.db.inventory.sightings import Ledger, Sighting, chunks, columns, fold
from runlane.errors import Defect
from runlane.tools import Category
from runlane.tools.portlists import MalformedPorts, parse_ports
from runlane.tools.ports_scanner import PortRecord
from runlane.tools.url_discovery import UrlRecord
from tests.integration.merge_world import untold

NIL = UUID(int=0)
BASE = MergeJob(
    job_id=NIL,
    attempt=1,
    workspace_id=NIL,
    run_id=NIL,
    target_id=None,
    asset_id=None,
    service_id=None,
    tool_id="portprobe",
    observed_at=datetime(2026, 12, 1, tzinfo=UTC),
    complete=True,
    reachable=True,
    coverage={},
    records=(),
)


def job(number: int, minute: int = 0) -> MergeJob:
    return replace(BASE, job_id=UUID(int=number), observed_at=BASE.observed_at + timedelta(minutes=minute))


jobs = st.builds(job, st.integers(1, 4), st.integers(0, 3))
seen = st.lists(st.tuples(st.sampled_from("ab"), jobs, st.integers(0, 3)))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["address", "ports", "protocol", "zone", "method", "scope", "url", "checks"])
coverages = st.dictionaries(names, json_values)
ports = st.integers(1, 65_535)


def rank(record: int) -> tuple[object, ...]:
    return (record,)


@given(seen, st.randoms(use_true_random=False))
def test_fold_does_not_depend_on_order(rows: list[tuple[str, MergeJob, int]], dice: object) -> None:
    shuffled = list(rows)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random, which hypothesis does not say

    def moments(folded: dict[str, Sighting[int]]) -> dict[str, tuple[object, ...]]:
        return {
            key: (each.record, each.newest.observed_at, each.oldest.observed_at, each.oldest.job_id)
            for key, each in folded.items()
        }

    assert moments(fold(rows, rank)) == moments(fold(shuffled, rank))


@given(seen)
def test_fold_keeps_the_newest_record_and_the_oldest_finder(rows: list[tuple[str, MergeJob, int]]) -> None:
    folded = fold(rows, rank)

    assert folded.keys() == {key for key, _, _ in rows}
    for key, each in folded.items():
        of_key = [(one, record) for name, one, record in rows if name == key]
        newest = max(one.observed_at for one, _ in of_key)
        assert each.newest.observed_at == newest
        assert each.record == max(record for one, record in of_key if one.observed_at == newest)
        assert each.oldest.observed_at == min(one.observed_at for one, _ in of_key)


def some_port(number: int) -> PortRecord:
    return PortRecord(number, "tcp", "127.0.0.1", None, None)


@given(st.lists(st.integers(0, 7), max_size=5), st.integers(1, 5))
def test_chunks_hold_every_record_once_in_order(counts: list[int], size: int) -> None:
    given_jobs = [replace(job(n), records=[some_port(p + 1) for p in range(c)]) for n, c in enumerate(counts)]

    found = list(chunks(given_jobs, PortRecord, size))

    assert all(0 < len(chunk) <= size for chunk in found)
    assert [pair for chunk in found for pair in chunk] == [(j, r) for j in given_jobs for r in j.records]


def test_record_of_another_category_is_a_defect() -> None:
    with pytest.raises(Defect):
        list(chunks([replace(BASE, records=[some_port(1)])], UrlRecord))


@given(st.lists(st.tuples(st.integers(), st.text()), min_size=1))
def test_columns_are_the_transposed_rows(rows: list[tuple[object, ...]]) -> None:
    first, second = columns(rows)

    assert list(zip(first, second, strict=True)) == rows


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_summary_adds_up(new: int, outside: int, rest: int) -> None:
    one = replace(BASE, records=[some_port(1)] * (new + outside + rest))
    ledger = Ledger([one], untold)
    for _ in range(new):
        ledger.found(one)
    ledger.left_out(one, outside)

    summary = ledger.summaries()[one.job_id]

    assert (summary.new, summary.outside, summary.updated) == (new, outside, rest)
    assert summary.records == new + outside + rest


@given(coverages)
def test_reading_coverage_never_fails(coverage: dict[str, object]) -> None:
    readable: dict[str, object] = {
        "address": "127.0.0.1",
        "ports": "1",
        "zone": "a.test",
        "method": ["axfr"],
        "scope": "http://a.test/",
        "url": "http://a.test/",
        "checks": ["x"],
    }
    for given_coverage in (coverage, readable | coverage):
        for read in (port_coverage, zone_coverage, url_coverage, check_coverage):
            read(given_coverage)


@given(st.lists(st.tuples(ports, ports).map(sorted).map(tuple), min_size=1, max_size=8), ports)
def test_port_ranges_hold_exactly_the_ports_named(ranges: list[tuple[int, int]], number: int) -> None:
    text = ",".join(f"{low}-{high}" if low != high else str(low) for low, high in ranges)

    looked = port_coverage({"address": "127.0.0.1", "ports": text})

    assert looked is not None
    inside = any(low <= number <= high for low, high in ranges)
    assert any(low <= number <= high for low, high in looked.ports) == inside
    borders = [border for each in looked.ports for border in each]
    assert borders == sorted(borders)
    assert all(low > high + 1 for (_, high), (low, _) in zip(looked.ports, looked.ports[1:], strict=False))


@given(st.sets(ports, min_size=1, max_size=50))
def test_ports_as_list_and_as_text_mean_the_same(numbers: set[int]) -> None:
    text = ", ".join(map(str, numbers))

    as_text = port_coverage({"address": "127.0.0.1", "ports": text})
    as_list = port_coverage({"address": "127.0.0.1", "ports": list(numbers)})

    assert as_text == as_list is not None


@given(
    st.text("0123456789-, x", max_size=12) | st.lists(st.integers(-1, 70_000) | st.text("09-, ", max_size=5))
)
@example("1 - 5")
@example("1-5 ,7")
def test_scan_and_its_coverage_read_the_same_ports(value: object) -> None:
    looked = port_coverage({"address": "127.0.0.1", "ports": value})

    if looked is None:
        with pytest.raises(MalformedPorts):
            parse_ports(value)
    else:
        assert parse_ports(value) == [n for low, high in looked.ports for n in range(low, high + 1)]


@pytest.mark.parametrize(
    "value", ["", "0", "1-", "-1", "2-1", "65536", "1,x", "1-2-3", "٣", [True], [1.0], {}]
)
def test_ports_that_cannot_be_read_cover_nothing(value: object) -> None:
    assert port_coverage({"address": "127.0.0.1", "ports": value}) is None


def test_addresses_are_compared_in_one_spelling() -> None:
    looked = port_coverage({"address": "::ffff:127.0.0.1", "ports": "1"})

    assert looked is not None
    assert looked.address == "127.0.0.1"
    assert looked.multirange == "{[1,1]}"


@pytest.mark.parametrize("scope", ["http://a.test/x", "http://a.test/?q", "ftp://a.test/", "a.test", 5, None])
def test_scope_without_a_border_covers_nothing(scope: object) -> None:
    assert url_coverage({"scope": scope}) is None


def test_scope_is_normalised() -> None:
    assert url_coverage({"scope": "HTTP://A.test:80"}) == "http://a.test/"


@pytest.mark.parametrize(
    ("complete", "reachable", "speaks"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_only_a_complete_result_that_reached_its_target_speaks_of_absence(
    complete: bool, reachable: bool, speaks: bool
) -> None:
    assert speaks_of_absence(replace(BASE, complete=complete, reachable=reachable)) is speaks


def test_every_category_has_a_merge() -> None:
    assert MERGES.keys() == set(Category)
