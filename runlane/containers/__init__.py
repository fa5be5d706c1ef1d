"""Containers of an engine: what one is made of, and what is said of it. The engine itself is in `engine`.

Nothing here imports the SDK: a scan worker without container mode never loads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024

NO_NETWORK: Final = "none"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is present on the engine."""

    id: str
    """`sha256:` and the digest of its configuration: names exactly this content."""
    repo_digests: tuple[str, ...] = ()
    """`repository@sha256:…`, for each registry that it came from."""
    has_volumes: bool = False
    """Whether it declares volumes, which an engine would make without any limit."""

    def is_named(self, digest: str) -> bool:
        """Whether this digest names it: its own, or the one that a registry gave it."""
        return self.id == digest or any(name.endswith(f"@{digest}") for name in self.repo_digests)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What to create. Everything that is not here is closed: see `engine.configuration`."""

    image_id: str
    argv: tuple[str, ...]
    """The whole command; what the image says that it starts is not asked."""
    has_stdin: bool
    memory_bytes: int
    cpus: float
    pids: int
    tmpfs_bytes: int
    network: str = NO_NETWORK
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended."""

    code: int
    is_oom: bool
    """Whether the kernel killed one of its processes because its memory was used up."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself."""

    name: str
    version: str
    api_version: str
    lacks: tuple[str, ...]
    """Limits that it cannot keep."""


__all__ = [
    "MIB",
    "NO_NETWORK",
    "ContainerEnd",
    "ContainerSpec",
    "EngineFacts",
    "Image",
]
