"""Limits of one container: each bounded, and a malformed one refused rather than left out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from runlane.connectors.faults import Part

MAX_BATCH_S: Final = 86_400.0
"""Seconds that a whole batch may take at most."""

WHOLES: Final[Mapping[str, tuple[int, int]]] = {
    "memory_mb": (8, 65_536),
    "pids": (1, 4_096),
    "tmpfs_mb": (0, 4_096),
    "output_mb": (1, 256),
    "parallelism": (1, 32),
    "max_batch": (1, 100),
}
"""Bounds of limits that are whole numbers, both included."""

NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "cpus": (0.05, 64),
    "wall_s": (1, 14_400),
    "silence_s": (1, 14_400),
}
"""Bounds of the others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one container may use, and how many run at once."""

    memory_mb: int = 256
    """Memory, and memory with swap: there is none."""
    cpus: float = 1.0
    pids: int = 128
    tmpfs_mb: int = 16
    """Size of `/tmp`, the only place that can be written; 0 for none."""
    wall_s: float = 300.0
    """Limit of one job."""
    silence_s: float = 60.0
    """Time without a byte of output after which a container counts as hanging."""
    output_mb: int = 16
    """Standard output that is read; a container that writes more is ended."""
    parallelism: int = 2
    """Containers of one batch at once."""
    max_batch: int = 6
    """Jobs of one batch."""

    def as_json(self) -> dict[str, object]:
        """As it stands in a manifest."""
        return asdict(self)


def read_limits(part: Part) -> Limits:
    """Reads `limits`; what is absent has its default."""
    part.only(frozenset(Limits.__slots__), {})
    usual = Limits()
    limits = Limits(
        memory_mb=part.whole("memory_mb", usual.memory_mb, *WHOLES["memory_mb"]),
        cpus=part.number("cpus", usual.cpus, *NUMBERS["cpus"]),
        pids=part.whole("pids", usual.pids, *WHOLES["pids"]),
        tmpfs_mb=part.whole("tmpfs_mb", usual.tmpfs_mb, *WHOLES["tmpfs_mb"]),
        wall_s=part.number("wall_s", usual.wall_s, *NUMBERS["wall_s"]),
        silence_s=part.number("silence_s", usual.silence_s, *NUMBERS["silence_s"]),
        output_mb=part.whole("output_mb", usual.output_mb, *WHOLES["output_mb"]),
        parallelism=part.whole("parallelism", usual.parallelism, *WHOLES["parallelism"]),
        max_batch=part.whole("max_batch", usual.max_batch, *WHOLES["max_batch"]),
    )
    rounds = -(-limits.max_batch // limits.parallelism)
    if rounds * limits.wall_s > MAX_BATCH_S:
        part.fault("max_batch", f"a batch of that many jobs could take more than {MAX_BATCH_S:g} s")
    return limits
