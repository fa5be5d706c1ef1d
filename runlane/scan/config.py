"""What a scan worker is told at its start."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runlane.errors import Invalid

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What one batch may cost its host, and how long the worker waits for others."""

    job_output_bytes: int = 16 * 1024 * 1024
    """Records kept of one job; the rest is cut and the result labelled as incomplete."""
    batch_output_bytes: int = 64 * 1024 * 1024
    """What one child may write before it is killed."""
    memory_bytes: int = 2 * 1024 * 1024 * 1024
    """Address space of one child."""
    spool_bytes: int = 256 * 1024 * 1024
    """Results kept on disk while the API does not take them; what comes beyond is dropped."""
    flush_after_s: float = 1.0
    """Longest time that a finished job waits for its batch before it is staged alone."""
    claim_patience_s: float = 60.0
    """How long a claim is tried again while the API does not answer; then the batch goes back."""
    stage_patience_s: float = 300.0
    """How long a batch stays open while its results cannot be delivered; then only the spool has them."""
    drain_s: float = 0.0
    """How long batches may finish after the worker was told to stop; 0 gives them back at once."""


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """What the host's operator lets connectors do."""

    allowed: frozenset[str]
    """Digests of the images that may run. Nothing else does, whatever the API says."""
    most: int = 4
    """Containers at once."""
    network: str = "bridge"
    """Network of connectors that contact their targets."""
    may_pull: bool = False
    """Whether an allowed image that is not here is fetched."""


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """Everything `run_scan_worker` needs; read once, passed down."""

    api_url: str
    state_dir: Path
    """Folder of the credential and the spool; only one worker may use it at a time."""
    name: str
    toolsets: Mapping[str, int] = field(default_factory=lambda: {"probe": 8})
    """Batches at once, by tool set. They do not share: an idle tool set lends nothing to a busy one."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of the tools that are foreign programs, as found on this host."""
    enrolment_key: str = field(default="", repr=False)
    """API key with the scope `worker:join`; needed until the worker has a credential of its own."""
    temporal_address: str = ""
    """The gateway as this host reaches it (host:port); empty: what the API says at the join."""
    limits: ScanLimits = field(default_factory=ScanLimits)
    containers: ContainerSettings | None = None
    """None: no image may run."""


def read_digests(text: str) -> frozenset[str]:
    """Digests of images, separated by commas or blanks, or one a line in the file behind an `@`.

    Raises:
        Invalid: one of them is none, or the file cannot be read.
    """
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise Invalid(f"the list of images cannot be read: {error}") from error
        text = " ".join(line.split("#")[0] for line in lines)
    digests = text.replace(",", " ").split()
    for digest in digests:
        if not _DIGEST.fullmatch(digest):
            raise Invalid(f"an image is allowed by its digest, sha256: and 64 hex digits, not {digest[:100]}")
    return frozenset(digests)
