"""What a connector with `output: records` says: lines of JSON, in the protocol of our own probes.

`{"record": {…}}` is a record, `{"done": {"outcome": …}}` the last word, `{"tick": 1}` a life sign. There is
one job in a container: a line may name it, and must not name another one.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from runlane.tools.adapters.adapter import Conclusion, Ended, Raw, ToolJob
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import Options
from runlane.tools.clean import clean
from runlane.tools.records import MalformedRecord

MAX_ERROR: Final = 2_000
"""Characters of an error text."""

MAX_COVERAGE_BYTES: Final = 16_384
"""A coverage larger than this is dropped, and the result counts as incomplete."""


def job_line(job: ToolJob, options: Mapping[str, object], platform: Options) -> bytes:
    """The job as a container reads it from its standard input, whole, before it is closed."""
    target = {"host": job.host, "address": job.address, "port": job.port, "url": job.url, "tls": job.tls}
    rules = {"allow": list(platform.allow), "bound": platform.is_bound, "deny": list(platform.deny)}
    return orjson.dumps({"job": job.job_id, "target": target, "options": {**options, **rules}}) + b"\n"


class RecordReader:
    """Reads the lines of one container."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._done: Mapping[str, object] | None = None

    def feed(self, line: bytes) -> Sequence[Raw]:
        """See `Reader`."""
        try:
            said: object = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise MalformedRecord("a line of JSON was expected") from error
        if isinstance(said, dict) and said.get("job", self._job_id) != self._job_id:
            raise MalformedRecord("a line about another job")
        match said:
            case {"record": dict(record)}:
                return (_cleaned(record),)
            case {"done": dict(done)}:
                self._done = done
            case {"tick": int()}:
                pass
            case _:
                raise MalformedRecord("a line without record, done or tick")
        return ()

    def conclude(self, ended: Ended) -> Conclusion:
        """See `Reader`. A container without a last word has not said that it did its work.

        Raises:
            BadTarget: the connector says that the job can never be done.
        """
        done = self._done or {}
        said = done.get("error")
        error = said[:MAX_ERROR] if isinstance(said, str) and said else None
        if done.get("outcome") == "fatal":
            raise BadTarget(error or "the connector calls the job impossible")
        if ended.code:
            return Conclusion(failure=error or f"exit code {ended.code}")
        if done.get("outcome") != "completed":
            return Conclusion(failure=error or "the container ended without a last word")
        coverage = _sound(done.get("coverage", {}))
        return Conclusion(
            complete=done.get("complete") is True and coverage is not None,
            reachable=done.get("reachable") is True,
            coverage=coverage or {},
            note=error,
        )


def _sound(coverage: object) -> Mapping[str, object] | None:
    """The coverage; None if it is no object or too large to be passed on."""
    if not isinstance(coverage, dict):
        return None
    cleaned = _cleaned(coverage)
    return cleaned if len(orjson.dumps(cleaned)) <= MAX_COVERAGE_BYTES else None


def _cleaned(said: dict[str, object]) -> Mapping[str, object]:
    """An object of a container, within the depth that is written and taken everywhere."""
    cleaned = clean(said)
    return cleaned if isinstance(cleaned, dict) else {}
