"""What a scan worker is told at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


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
