"""Rates: how many packets or requests a second, divided among jobs, and how one job keeps to its share. Pure.

A rate is divided into few large shares: a job that is given little for long runs into its time limit, and
what is sent altogether is the same.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

USEFUL_PER_S: Final = 50
"""More than this is of no use to most jobs: a rate that allows it goes to several at once."""

MOST_SHARES: Final = 16
"""Jobs that share one rate at once, at most."""

MAX_RATE: Final = 1_000_000
"""Largest rate; more is as good as none."""

PACED: Final = frozenset(
    {
        *("dnsprobe", "portprobe", "webprobe", "webcrawl", "webcheck"),
        *("naabu", "httpx", "nuclei", "katana", "nmap"),
    }
)
"""Tools that keep to a share."""

SILENT: Final = frozenset({"subfinder", "noop"})
"""Tools that send nothing to what they are about and need no share. Any other is refused under a rate."""


@dataclass(slots=True)
class Rate:
    """One rate, and what is given out of it."""

    per_second: int
    used: int = 0

    @property
    def left(self) -> int:
        """What may still be given."""
        return max(0, self.per_second - self.used)

    def share(self, need: int = 1) -> int:
        """What the next job would be given by it alone; 0: the job has to wait.

        Never less than it needs, unless the whole rate is less.
        """
        share = min(self.left, max(USEFUL_PER_S, -(-self.per_second // MOST_SHARES), need))
        return share if share >= min(need, self.per_second) else 0


class Division:
    """What is given out, by the things that have a rate, to jobs that all need so much a second."""

    def __init__(self, rates: Mapping[Hashable, Rate], need: int = 1) -> None:
        self._rates = rates
        self._need = need

    def covers(self, keys: Sequence[Hashable]) -> bool:
        """Whether one of these has a rate."""
        return any(key in self._rates for key in keys)

    def share(self, keys: Sequence[Hashable]) -> int | None:
        """What a job about these would be given now; None: as much as it likes, 0: it has to wait."""
        return min((self._rates[key].share(self._need) for key in keys if key in self._rates), default=None)

    def give(self, keys: Sequence[Hashable]) -> int | None:
        """The same, and gives it."""
        share = self.share(keys)
        for key in keys:
            if share and key in self._rates:
                self._rates[key].used += share
        return share

    def full(self) -> list[Hashable]:
        """What leaves no job enough."""
        return [key for key, rate in self._rates.items() if rate.share(self._need) == 0]


class Spacing:
    """Moments of one job's packets or requests, evenly apart; it saves nothing up for a burst."""

    def __init__(self, per_second: float) -> None:
        self._apart_s = 1.0 / per_second
        self._next = float("-inf")

    def wait_s(self, now: float) -> float:
        """How long the next one has to wait; it is taken to happen then."""
        at = max(now, self._next)
        self._next = at + self._apart_s
        return at - now
