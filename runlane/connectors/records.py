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
from runlane.tools.records import MalformedRecord

MAX_ERROR: Final = 2_000
"""Characters of an error text."""

MAX_COVERAGE_BYTES: Final = 16_384
"""A coverage larger than this is dropped, and the result counts as incomplete."""


def job_line(job: ToolJob, options: Mapping[str, object], platform: Options) -> bytes:
    """The job as a container reads it from its standard input, whole, before it is closed."""
    target = {"host": job.host, "address": job.address, "port": job.port, "url": job.url, "tls": job.tls}
    rules = {"allow": list(platform.allow), "deny": list(platform.deny)}
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
                return (record,)
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
        error = str(done["error"])[:MAX_ERROR] if done.get("error") else None
        if done.get("outcome") == "fatal":
            raise BadTarget(error or "the connector calls the job impossible")
        if ended.code:
            return Conclusion(failure=error or f"exit code {ended.code}")
        if done.get("outcome") != "completed":
            return Conclusion(failure=error or "the container ended without a last word")
        coverage = done.get("coverage", {})
        is_sound = isinstance(coverage, dict) and len(orjson.dumps(coverage)) <= MAX_COVERAGE_BYTES
        return Conclusion(
            complete=done.get("complete") is True and is_sound,
            reachable=done.get("reachable") is True,
            coverage=coverage if isinstance(coverage, dict) and is_sound else {},
            note=error,
        )
