"""What an attempt ran, as a list of arguments that a person can read again years later. Pure."""

from collections.abc import Mapping
from typing import Final

import orjson

from runlane.scan.lines import job_lines
from runlane.scan.wire import ClaimedJob

MAX_VALUE_BYTES: Final = 200
"""An option longer than this is told by its size: a word list would bury the rest."""

_PROBES: Final = "runlane.probes"


class ProbeArgv:
    """Arguments of the jobs of one batch of a probe: its module, and the line of input that it was given.

    The same line on the standard input of `python -m` with that module does the job again.
    """

    def __init__(self, probe: str, options: Mapping[str, object]) -> None:
        self._module = f"{_PROBES}.{probe}"
        self._options = {name: _told(value) for name, value in options.items()}

    def of(self, job: ClaimedJob) -> tuple[str, ...]:
        """What was run for one job."""
        return self._module, job_lines([job], self._options).decode().rstrip("\n")


def _told(value: object) -> object:
    size = len(orjson.dumps(value))
    return value if size <= MAX_VALUE_BYTES else f"[{size} bytes]"
