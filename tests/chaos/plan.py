"""What is done to which process and when: pure, so that a seed gives the same storm again."""

import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

PickedT = TypeVar("PickedT")

MEAN_GAP_S: Final = 4.0
"""Mean time between two blows: with recovery included, 100 of them take about ten minutes."""

STOPPED_S: Final = (0.5, 9.0)
"""How long a stopped process stays so: shorter and longer than a heartbeat, a lease and a grace."""

WEIGHTS: Final[Mapping[str, int]] = {
    "scan": 5,
    "scan-2": 5,
    "core": 4,
    "results": 4,
    "api": 4,
    "lanes": 3,
    "gateway": 4,
    "temporal": 2,
    "postgres": 2,
    "valkey": 2,
    "s3": 1,
}
"""How often each process is hit, in proportion."""

GUARD: Final = "guard"
"""The process beside a scan worker in container mode."""

CONTAINER: Final = "container"
"""Any container of the scan workers, hit past them, by the engine."""

WITH_CONTAINERS: Final[Mapping[str, int]] = {**WEIGHTS, GUARD: 2, CONTAINER: 4}
"""The same where there is an engine."""

NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "api": ("postgres",),
    "scan": ("api", "postgres"),
    "scan-2": ("api", "postgres"),
}
"""What a process cannot be ready without."""

_SERVERS: Final = frozenset({"temporal", "postgres", "valkey", "s3"})
"""Their orderly stop is the operator's; what comes unasked for is a kill or a freeze."""

_KINDS: Final[Mapping[signal.Signals, int]] = {signal.SIGKILL: 6, signal.SIGTERM: 3, signal.SIGSTOP: 2}


@dataclass(frozen=True, slots=True)
class Blow:
    """One signal to one process. To a container: killed, stopped (SIGTERM) or paused by the engine."""

    gap_s: float
    """Time since the blow before."""
    process: str
    signal: signal.Signals
    held_s: float = 0.0
    """Of SIGSTOP: until SIGCONT."""


def plan(
    seed: int, count: int, gap_s: float = MEAN_GAP_S, weights: Mapping[str, int] = WEIGHTS
) -> list[Blow]:
    """The storm of a seed: always the same."""
    dice = random.Random(seed)
    return [_blow(dice, gap_s, weights) for _ in range(count)]


def _blow(dice: random.Random, gap_s: float, weights: Mapping[str, int]) -> Blow:
    process = _pick(dice, weights)
    kinds = {kind: weight for kind, weight in _KINDS.items() if _fits(process, kind)}
    kind = _pick(dice, kinds)
    held_s = dice.uniform(*STOPPED_S) if kind is signal.SIGSTOP else 0.0
    return Blow(dice.expovariate(1 / gap_s), process, kind, held_s)


def _fits(process: str, kind: signal.Signals) -> bool:
    if process == GUARD:
        return kind is signal.SIGKILL
    return not (process in _SERVERS and kind is signal.SIGTERM)


def _pick(dice: random.Random, weights: Mapping[PickedT, int]) -> PickedT:
    return dice.choices(list(weights), list(weights.values()))[0]
