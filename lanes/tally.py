"""What a process counts of its lanes: outcomes, the time of their sinks, the last failure."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one lane since the process began.

    `acked` were handled or given up, `skipped` the sink does not want, `unknown` nobody could read. `failed`
    are attempts, `dead` are events that were given up, `lost` those that were nowhere any more.
    """

    counts: Counter[str] = field(default_factory=Counter)
    handled_s: float = 0.0
    handled_times: int = 0
    last_error: str | None = None
    """Of the time since it was last reported."""

    def note_failure(self, error: str) -> None:
        """Counts an attempt that failed by the sink's fault."""
        self.counts["failed"] += 1
        self.last_error = error

    def note_handled(self, seconds: float) -> None:
        """Counts one call of the sink."""
        self.handled_s += seconds
        self.handled_times += 1


@dataclass(slots=True)
class Tallies:
    """Those of all lanes of a process, and of its relay."""

    lanes: dict[str, Tally] = field(default_factory=dict)
    published: int = 0
    publish_s: float = 0.0
    publish_times: int = 0

    def of(self, lane: str) -> Tally:
        """That of one lane."""
        return self.lanes.setdefault(lane, Tally())

    def note_published(self, events: int, seconds: float) -> None:
        """Counts one call to the stream."""
        self.published += events
        self.publish_s += seconds
        self.publish_times += 1
