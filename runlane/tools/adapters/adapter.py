"""What an adapter is: how a foreign program is given jobs, and how what it says becomes records. Pure.

An adapter starts nothing and opens nothing. It answers argument lists; a value that came from outside stands
behind `--` or on the standard input, or was read by a grammar that admits no hyphen at its front.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from runlane.tools.adapters.options import Options, Schema

Raw: TypeAlias = Mapping[str, object]
"""A record in the form of its category, not yet read by the category's own reader."""

GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class ToolJob:
    """One job as a program is told of it: every field was read by its grammar."""

    job_id: str
    host: str
    """Name or address in its one spelling."""
    address: str | None = None
    """Where the host is: judged by the egress policy, and the only place that may be contacted."""
    port: int | None = None
    url: str | None = None
    tls: bool | None = None

    @property
    def literal(self) -> str:
        """The host as it stands in a URL: IPv6 in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True)
class Command:
    """What to start."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    """Written whole, then closed."""
    output: str | None = None
    """File in the private folder that holds the result after a clean end; None: all is on standard output."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files in the private folder by name, written before the start: what must not be among arguments."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended by itself."""

    code: int
    stderr: str
    output: bytes | None = None
    """Content of the command's `output`, if it is there."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is said of one job once its child has ended by itself."""

    complete: bool = False
    """Whether all of `coverage` was looked at; a complete result closes what it no longer sees."""
    reachable: bool = False
    coverage: Raw = field(default_factory=dict)
    records: tuple[Raw, ...] = ()
    """What is only known at the end."""
    failure: str | None = None
    """Why this is no result; trying again may help."""
    note: str | None = None
    """What a reader of the result should know."""


class Reader(Protocol):
    """Reads what one child says about one job."""

    def feed(self, line: bytes) -> Sequence[Raw]:
        """Records of one line of output.

        Raises:
            MalformedRecord: the line, or a part of it, cannot be read; the others are unaffected.
        """
        ...

    def conclude(self, ended: Ended) -> Conclusion:
        """The last word, after all lines."""
        ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a stage may use."""

    folder: str
    """Private to this child, empty at its start and removed after its end."""
    found: tuple[Raw, ...] = ()
    """Records of the stage before."""


Stage: TypeAlias = Callable[[ToolJob, Options, Workplace], tuple[Command, Reader]]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that must be on PATH, and how it is asked for its version."""

    name: str
    version_argv: tuple[str, ...]
    version_sign: str
    """Regular expression with one group. Another program of the same name does not say this."""
    others: tuple[str, ...] = ()
    """Other names that systems install it by."""


@dataclass(frozen=True, slots=True)
class Each:
    """One child for each job. With several stages the records of the last one count."""

    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """One record, and the key of the members that it is about."""

    key: str
    record: Raw


@dataclass(frozen=True, slots=True)
class Many:
    """One child for all jobs of a batch."""

    command: Callable[[Sequence[ToolJob], Options, Workplace], Command]
    key_of: Callable[[ToolJob], str]
    """What records name this job by; jobs of the same key share records."""
    read: Callable[[bytes], Found | None]
    """Reads one line; None if it is about nothing. Raises MalformedRecord."""
    conclude: Callable[[ToolJob, Options, Sequence[Raw]], Conclusion]
    """The last word on a job with its records, after exit code 0."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Everything that is special about a tool made of foreign programs."""

    programs: tuple[Program, ...]
    """All that it needs; the first one's version is the tool's."""
    schema: Schema
    """Options that a step's `config` may have, beyond those that every tool takes."""
    way: Each | Many
    silence_s: float
    """Time without a byte of output after which a child counts as hanging."""
    needs_address: bool = True
    """Whether the host is resolved and judged before; false for tools that contact third parties only."""
    needs_home: bool = False
    """Whether it reads its own configuration from the worker's home folder."""
    address_space_bytes: int | None = 2 * GIB
    """None for a program that reserves far more than it uses."""
