"""Which metrics there are, and what events add to them."""

from datetime import UTC, date, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest

from runlane.errors import Invalid
from runlane.events import LEAVES, BusEvent, Envelope, Lane, is_subscribed
from runlane.statistics import METRICS, READ, Cell, Kind, choose, count, touched

WORKSPACE = UUID(int=1)
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def event(name: str, at: datetime = NOON, **data: object) -> BusEvent:
    return BusEvent(Envelope(uuid4(), name, WORKSPACE, "job/1", data), 1, at)


def test_everything_that_is_counted_is_an_event_that_the_lane_reads_and_that_has_a_producer_or_a_name() -> (
    None
):
    assert set(LEAVES) >= READ
    assert all(is_subscribed(Lane.PROJECTION, name) for name in READ)


def test_events_count_on_their_own_day_in_utc() -> None:
    east = timezone(timedelta(hours=14))
    events = [event("job.completed"), event("job.completed", NOON.astimezone(east)), event("job.failed")]
    events += [event("job.completed", NOON + timedelta(hours=12)), event("worker.joined")]

    assert count(events) == {
        Cell(WORKSPACE, date(2026, 12, 1), "jobs.completed"): 2,
        Cell(WORKSPACE, date(2026, 12, 1), "jobs.failed"): 1,
        Cell(WORKSPACE, date(2026, 12, 2), "jobs.completed"): 1,
    }


def test_findings_count_by_severity_and_one_without_is_refused() -> None:
    (cell,) = count([event("vulnerability.detected", severity="high")])

    assert cell.metric == "findings.detected.high"
    assert METRICS[cell.metric] is Kind.COUNTER
    for severity in (None, "urgent"):
        with pytest.raises(Invalid):
            count([event("vulnerability.detected", severity=severity)])


def test_events_touch_targets_assets_and_runs_and_one_without_the_id_is_refused() -> None:
    target, asset, run = uuid4(), uuid4(), uuid4()
    found = touched(
        [
            event("asset.discovered", target_id=str(target), asset_id=str(asset)),
            event("vulnerability.resolved", asset_id=str(asset)),
            event("workflow.run.completed", run_id=str(run)),
            event("job.completed"),
        ]
    )

    assert found == ({(WORKSPACE, target)}, {(WORKSPACE, asset)}, {(WORKSPACE, run)})
    with pytest.raises(Invalid):
        touched([event("asset.port.opened", asset_id="none")])


def test_metrics_are_chosen_by_name_or_beginning() -> None:
    assert choose(["jobs.failed", "live.findings"]) == [
        "jobs.failed", "live.findings.critical", "live.findings.high", "live.findings.info",
        "live.findings.low", "live.findings.medium",
    ]  # fmt: skip
    assert choose([]) == sorted(METRICS)
    for word in ("job", "jobs.", "", "jobs.failed.x"):
        with pytest.raises(Invalid):
            choose([word])
