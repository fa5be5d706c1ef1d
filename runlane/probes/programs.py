"""All probe programs behind one door, for a process that imports them once and forks for each batch.

Importing starts no thread and opens nothing, so that a fork finds a quiet process.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from runlane.probes import dnsprobe, noop, portprobe, webcheck, webcrawl, webprobe
from runlane.probes.job import RunJob
from runlane.probes.stream import serve_stream
from runlane.tools import TOOLS

PROBES: Final[Mapping[str, RunJob]] = MappingProxyType(
    {
        "dnsprobe": dnsprobe.run_job,
        "portprobe": portprobe.run_job,
        "webprobe": webprobe.run_job,
        "webcrawl": webcrawl.run_job,
        "webcheck": webcheck.run_job,
        "noop": noop.run_job,
    }
)
"""How one job of each tool is done; one for each probe of `TOOLS` (asserted by a test)."""


def serve(tool: str) -> int:
    """Works off the jobs on fd 0, reports on fd 1, and returns the exit code once fd 0 ends.

    Raises:
        KeyError: there is no such probe.
    """
    return serve_stream(TOOLS[tool], PROBES[tool])
