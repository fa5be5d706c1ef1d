"""Peak memory of the platform's processes, as the kernel keeps it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runlane.stack.supervisor import Stack

MEBIBYTE: Final = 1024 * 1024

_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_RESET: Final = "5"
"""What makes the kernel take the peak from now on. Source: proc(5), clear_refs."""


def reset_peaks(stack: Stack) -> None:
    """Forgets the peaks so far of every process of the stack."""
    for pid in _pids(stack).values():
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET)


def peaks(stack: Stack) -> dict[str, float]:
    """Peak resident memory of every process of the stack since then, in MiB, children left out."""
    found = {
        name: _PEAK.search(Path(f"/proc/{pid}/status").read_text()) for name, pid in _pids(stack).items()
    }
    return {name: int(match.group(1)) / 1024 for name, match in found.items() if match is not None}


def _pids(stack: Stack) -> Mapping[str, int]:
    return {status.name: status.pid for status in stack.status() if status.pid is not None}
