"""What this process could not publish, counted since its start; a metric reads it."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import structlog

log = structlog.get_logger(__name__)

MAX_NAMES: Final = 100
"""Names that are counted apart; the rest is counted together."""

OTHERS: Final = "others"

LOG_EVERY_S: Final = 60.0
"""How often the same name is logged at most: a producer's bug may sit in a hot path."""


@dataclass(slots=True)
class PublishCounts:
    """`refused`: events by a name that the catalog does not let pass; `swallowed`: lost, as nobody waited."""

    refused: Counter[str] = field(default_factory=Counter)
    swallowed: Counter[str] = field(default_factory=Counter)
    _logged_at: dict[str, float] = field(default_factory=dict)

    def note_refused(self, name: str, why: str) -> None:
        """Counts an event whose type a producer should not have used, and says so now and then."""
        known = _count(self.refused, name)
        if self._is_due(f"refused {known}"):
            log.error("event_refused", event_type=name[:100], why=why, times=self.refused[known])

    def note_swallowed(self, name: str, error: BaseException) -> None:
        """Counts an event that is lost because its producer does not wait for it."""
        known = _count(self.swallowed, name)
        if self._is_due(f"swallowed {known}"):
            log.error(
                "event_not_published",
                event_type=name[:100],
                error=str(error),
                error_type=type(error).__name__,
                times=self.swallowed[known],
            )

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now - self._logged_at.get(what, -LOG_EVERY_S) < LOG_EVERY_S:
            return False
        self._logged_at[what] = now
        return True


def _count(counter: Counter[str], name: str) -> str:
    known = name if name in counter or len(counter) < MAX_NAMES else OTHERS
    counter[known] += 1
    return known


COUNTS: Final = PublishCounts()
"""Those of this process."""
