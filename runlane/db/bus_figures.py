"""The figures of the bus that are in rows, computed when somebody asks."""

from collections.abc import Callable

from runlane.db.lane_status import COUNTED, BusStatus, LaneStatus
from runlane.exposition import Family, Kind, Sample


def figures_of(bus: BusStatus) -> list[Family]:
    """The figures of the bus and of each lane."""
    return [
        Family(
            "bridge_outbox_unpublished",
            Kind.GAUGE,
            "events that are not on the stream yet",
            [Sample(bus.unpublished)],
        ),
        Family(
            "bridge_outbox_oldest_seconds",
            Kind.GAUGE,
            "age of the oldest of them",
            [Sample(bus.oldest_unpublished_s)],
        ),
        Family("bridge_epoch", Kind.COUNTER, "how often the stream was begun anew", [Sample(bus.epoch)]),
        _gauge(bus, "bridge_lane_up", "1: the lane shows that it lives", lambda a: a.health != "down"),
        _gauge(bus, "bridge_lane_lag_events", "events that the lane has not handled", lambda a: a.lag_events),
        _gauge(bus, "bridge_lane_lag_seconds", "age of the oldest of them", lambda a: a.lag_s),
        _gauge(bus, "bridge_pending", "entries delivered and not acknowledged", lambda a: a.pending),
        _gauge(
            bus,
            "bridge_oldest_pending_seconds",
            "how long the oldest of them has been on the stream",
            lambda a: a.oldest_pending_s,
        ),
        _gauge(bus, "bridge_dlq_depth", "dead letters that wait for somebody", lambda a: a.dead_letters),
        Family(
            "bridge_lost_events_total",
            Kind.COUNTER,
            "events that neither stream nor outbox had any more",
            [Sample(lane.lost, {"lane": lane.lane}) for lane in bus.lanes],
        ),
        Family(
            "bridge_outcome_total",
            Kind.COUNTER,
            "what became of events, as all processes have reported",
            [
                Sample(getattr(lane, name), {"lane": lane.lane, "outcome": name})
                for lane in bus.lanes
                for name in COUNTED
            ],
        ),
    ]


def _gauge(bus: BusStatus, name: str, text: str, pick: Callable[[LaneStatus], float | None]) -> Family:
    values = [(lane.lane, pick(lane)) for lane in bus.lanes]
    samples = [Sample(float(value), {"lane": lane}) for lane, value in values if value is not None]
    return Family(name, Kind.GAUGE, text, samples)
