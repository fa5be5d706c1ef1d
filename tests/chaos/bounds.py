"""Times that were measured, and what they may be at most. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

NEVER_S: Final = math.inf
"""The time of what has not come at all."""


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of all does not exceed; of none it is `NEVER_S`."""
    if not values:
        return NEVER_S
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Times:
    """Samples of one time in seconds. `share` of them must keep to the bound: 1.0 means each."""

    name: str
    bound_s: float
    share: float
    least: int
    """Samples that are needed to say so."""
    values: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What was wrong besides the time."""

    @property
    def figure_s(self) -> float:
        """What is compared with the bound."""
        return percentile(self.values, self.share)

    @property
    def holds(self) -> bool:
        """Whether it was measured often enough, within the bound, and nothing else was wrong."""
        return len(self.values) >= self.least and self.figure_s <= self.bound_s and not self.faults

    def line(self) -> str:
        """One line of the table."""
        mark = "ok  " if self.holds else "MISS"
        what = "most" if self.share == 1.0 else f"p{100 * self.share:g}"
        spread = f"p50 {percentile(self.values, 0.5):.2f}, most {percentile(self.values, 1.0):.2f}"
        return (
            f"{mark} {self.name:<52} {what:<4} {self.figure_s:6.2f} ≤ {self.bound_s:g} s"
            f"  ({spread}, {len(self.values)} samples, {len(self.faults)} faults)"
        )
