"""What a probe is given and what it answers: the typed form of the tool stream's lines."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from runlane.tools.addresses import is_allowed, parse_address, parse_networks
from runlane.tools.clean import JsonValue, is_unstorable
from runlane.tools.exclusions import Denied, parse_denied, read_denied
from runlane.tools.headers import MalformedHeaders, read_headers

MAX_ERROR: Final = 2_000
"""Characters of an error text."""


class BadInput(ValueError):
    """The job cannot be done as it is written; doing it again gives the same. Its outcome is `fatal`."""


class Refused(BadInput):
    """The egress policy forbids the address; doing the job again gives the same."""


class DoneOutcome(StrEnum):
    """How a job ended, as the probe sees it."""

    COMPLETED = "completed"  # also with no record at all: an empty result is a result
    FAILED = "failed"  # doing it again may help
    FATAL = "fatal"  # doing it again never helps


@dataclass(frozen=True, slots=True)
class Done:
    """The last word on a job."""

    outcome: DoneOutcome = DoneOutcome.COMPLETED
    error: str | None = None
    complete: bool = True
    """False if the records are only a part of what there is."""
    reachable: bool = False
    """Whether this job got an answer from the target at all; without it, absence means nothing."""
    coverage: Mapping[str, object] = field(default_factory=dict)
    """What was looked at: whatever lies inside and was not reported is not there."""

    def as_json(self) -> dict[str, object]:
        """The `done` object of the stream."""
        return {
            "outcome": self.outcome.value,
            "error": self.error[:MAX_ERROR] if self.error else None,
            "complete": self.complete,
            "reachable": self.reachable,
            "coverage": dict(self.coverage),
        }


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """What to look at; fields are present as far as the platform knows them."""

    host: str
    """Domain name or address: for the Host header, SNI and resolving."""
    kind: str
    address: str | None = None
    """Where to connect; resolved from `host` if absent."""
    port: int | None = None
    url: str | None = None
    tls: bool | None = None
    """Whether the port speaks TLS, if an earlier step has tried."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a job: those the platform adds, typed, and those of the tool, read by name."""

    timeout_s: float
    allow: tuple[str, ...] = ()
    """CIDRs beyond global addresses that may be contacted."""
    resolver: tuple[str, int] | None = None
    """Address and port of the DNS server to ask; None is the system's."""
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    deny: tuple[str, ...] = ()
    """Exclusions: names, networks and ports that are not contacted, whatever `allow` says."""
    rate_per_s: int | None = None
    """Connections and requests that may be made a second; None: there is no rate."""
    is_bound: bool = False
    """The host is bound to an internal network: nothing but `allow` may be contacted."""

    @property
    def denied(self) -> Denied:
        """The exclusions, ready to be asked."""
        return parse_denied(self.deny)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Whole number; out of range or no number is BadInput."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadInput(f"option {name}: whole number from {low} to {high} expected")
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        """Text; anything else but null is BadInput."""
        value = self.values.get(name, default)
        if value is None:
            return None
        return value if value == "" else _expect_text(value, f"option {name}")

    def texts(self, name: str) -> tuple[str, ...] | None:
        """List of texts, None if absent; anything else is BadInput."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise BadInput(f"option {name}: list of texts expected")
        return tuple(_expect_text(item, f"option {name}") for item in value)

    def headers(self) -> dict[str, str]:
        """Headers that the step adds to requests to its own service; malformed ones are BadInput."""
        try:
            return read_headers(self.values.get("headers"))
        except MalformedHeaders as error:
            raise BadInput(f"option headers: {error}") from error


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """One job of a batch."""

    id: str
    target: ProbeTarget
    options: Options


Emit: TypeAlias = Callable[[Mapping[str, object]], Awaitable[None]]
"""Reports one record; waits while the reader is slow."""

RunJob: TypeAlias = Callable[[ProbeJob, Emit], Awaitable[Done]]
"""Does one job. Raises BadInput for what can never work, anything else for what may work later."""


def parse_job(job_id: str, line: Mapping[str, JsonValue], default_timeout_s: float) -> ProbeJob:
    """Reads a job line.

    Raises:
        BadInput: a field is missing or of the wrong form.
        Refused: the policy forbids the DNS server that an option names.
    """
    target, options = line.get("target"), line.get("options", {})
    if not isinstance(target, dict) or not isinstance(options, dict):
        raise BadInput("target and options must be objects")
    read = _parse_options(options, target.get("deny"), default_timeout_s)
    return ProbeJob(job_id, _parse_target(target), replace(read, rate_per_s=_parse_rate(target)))


def _parse_rate(target: Mapping[str, JsonValue]) -> int | None:
    rate = target.get("rate_per_s")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int) or rate < 1):
        raise BadInput("target.rate_per_s: whole number from 1 on expected")
    return rate


def _parse_target(raw: Mapping[str, JsonValue]) -> ProbeTarget:
    port, tls = raw.get("port"), raw.get("tls")
    address, url = raw.get("address"), raw.get("url")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535):
        raise BadInput("target.port: whole number from 1 to 65535 expected")
    if tls is not None and not isinstance(tls, bool):
        raise BadInput("target.tls: true, false or null expected")
    return ProbeTarget(
        host=_expect_text(raw.get("host"), "target.host"),
        kind=_expect_text(raw.get("kind", "host"), "target.kind"),
        address=None if address is None else _expect_text(address, "target.address"),
        port=port,
        url=None if url is None else _expect_text(url, "target.url"),
        tls=tls,
    )


def _parse_options(raw: Mapping[str, JsonValue], of_target: JsonValue, default_timeout_s: float) -> Options:
    timeout_s = raw.get("timeout_s", default_timeout_s)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < 1e6:
        raise BadInput("option timeout_s: positive number expected")
    options = Options(timeout_s=float(timeout_s), values=raw)
    allow = options.texts("allow") or ()
    try:
        parse_networks(allow)
    except ValueError as error:
        raise BadInput(f"option allow: {error}") from error
    try:
        deny = (*read_denied(raw.get("deny")), *read_denied(of_target))
    except ValueError as error:
        raise BadInput(f"option deny: {error}") from error
    resolver = _parse_resolver(options.text("resolver"))
    is_bound = raw.get("bound") is True
    # it is sent packets like any other host, and the option comes from whoever wrote the definition
    if resolver is not None and not (
        is_allowed(resolver[0], allow, is_bound=is_bound) and not parse_denied(deny).has_place(resolver[0])
    ):
        raise Refused(f"option resolver: {resolver[0]} may not be contacted")
    return Options(float(timeout_s), allow, resolver, raw, deny, is_bound=is_bound)


def _parse_resolver(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    address = host.removeprefix("[").removesuffix("]")
    if parse_address(address) is None or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise BadInput("option resolver: address and port expected, such as 192.0.2.53:53")
    return address, int(port)


def _expect_text(value: JsonValue, name: str) -> str:
    if not isinstance(value, str) or not value or is_unstorable(value):
        raise BadInput(f"{name}: text expected")
    return value
