"""Figures of what this process could not publish."""

from runlane.db.publish_counts import COUNTS
from runlane.exposition import Family, Kind, Sample


def publish_figures() -> list[Family]:
    """Refused and lost events by type, since the process began."""
    return [
        Family(
            "bridge_unknown_event_total",
            Kind.COUNTER,
            "events that were refused, as the catalog does not let their type pass",
            [Sample(times, {"type": name}) for name, times in sorted(COUNTS.refused.items())],
        ),
        Family(
            "bridge_swallowed_events_total",
            Kind.COUNTER,
            "events that are lost, as nobody waited for them and they could not be written",
            [Sample(times, {"type": name}) for name, times in sorted(COUNTS.swallowed.items())],
        ),
    ]
