"""All probe programs behind one door, for a process that imports them once and forks for each batch.

Importing starts no thread and opens nothing, so that a fork finds a quiet process.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
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

_LATE_IMPORTS: Final = (
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "cryptography.hazmat.backends.openssl.backend",
    "dns._asyncio_backend",
    "dns.rdtypes.IN",
    *(f"dns.rdtypes.ANY.{kind}" for kind in ("CNAME", "MX", "NS", "SOA", "TXT")),
    *(f"dns.rdtypes.IN.{kind}" for kind in ("A", "AAAA")),
    "httpcore2._async.http11",
    "httpcore2._backends.anyio",
)

_REHEARSALS: Final = 16
"""The interpreter specialises code after some uses; a fork then starts 1.6 ms earlier."""


def warm_up() -> None:
    """Does once what each fork would do anew: what libraries import at first use is 45 ms of a web batch.

    The names are the libraries' own business; one that is gone costs time, not correctness.
    """
    for name in _LATE_IMPORTS:
        with suppress(ImportError):
            import_module(name)
    for _ in range(_REHEARSALS):
        _rehearse()


def _rehearse() -> None:
    """Works off a job that does nothing: forks find code and type caches as a first use leaves them."""
    source, jobs = os.pipe()
    answers, sink = os.pipe()
    try:
        os.write(jobs, b'{"job":"rehearsal","target":{"host":"localhost"}}\n')
        os.close(jobs)
        serve_stream(TOOLS["noop"], noop.run_job, source, sink)
    finally:
        for end in (source, answers, sink):
            os.close(end)


def serve(tool: str) -> int:
    """Works off the jobs on fd 0, reports on fd 1, and returns the exit code once fd 0 ends.

    Raises:
        KeyError: there is no such probe.
    """
    return serve_stream(TOOLS[tool], PROBES[tool])
