"""What the absence of a record means: the rules of closing. Pure.

A scan that did not look, looked at a part only, or reached nothing must close nothing: a port that vanishes
from the inventory by mistake is a finding that nobody reads any more. So a result speaks about absence only
if it is complete, saw the target answer, and says in terms we understand what it looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runlane.db.inventory.sightings import MergeJob
from runlane.tools.addresses import parse_address
from runlane.tools.hosts import MalformedHost, normalise_host, normalise_name
from runlane.tools.portlists import MalformedPorts, Ranges, parse_ranges
from runlane.tools.urls import MalformedUrl, parse_url

MISSES_TO_CLOSE: Final = 2
"""Results in a row that looked and did not see, until a thing counts as gone: one may have been bad luck."""

MAX_CHECKS: Final = 10_000

_PROTOCOLS: Final = frozenset({"tcp", "udp"})
_LISTING: Final = "axfr"
"""The one method of name discovery that lists a zone; a word list says nothing of other words."""


def speaks_of_absence(job: MergeJob) -> bool:
    """Whether what this result does not mention may be taken as not there."""
    return job.complete and job.reachable


@dataclass(frozen=True, slots=True)
class PortCoverage:
    """Ports that were tried at one address."""

    address: str
    protocol: str
    ports: Ranges

    @property
    def multirange(self) -> str:
        """`ports` as PostgreSQL's int4multirange."""
        return "{" + ",".join(f"[{low},{high}]" for low, high in self.ports) + "}"


def port_coverage(coverage: Mapping[str, object]) -> PortCoverage | None:
    """Reads `{"address": "192.0.2.7", "ports": "1-1024,8080"}`; None when any part of it cannot be read."""
    address, protocol = coverage.get("address"), coverage.get("protocol", "tcp")
    if not isinstance(address, str) or parse_address(address) is None:
        return None
    if not isinstance(protocol, str) or protocol not in _PROTOCOLS:
        return None
    try:
        ranges = parse_ranges(coverage.get("ports"))
    except MalformedPorts:
        return None
    return PortCoverage(normalise_host(address), protocol, ranges)


def zone_coverage(coverage: Mapping[str, object]) -> str | None:
    """Reads `{"zone": "example.com", "method": ["axfr"]}`: a zone that was listed, else None."""
    zone, methods = coverage.get("zone"), coverage.get("method")
    if not isinstance(zone, str) or not isinstance(methods, list) or _LISTING not in methods:
        return None
    try:
        return normalise_name(zone, underscores=True)
    except MalformedHost:
        return None


def url_coverage(coverage: Mapping[str, object]) -> str | None:
    """Reads `{"scope": "http://a.example.com/"}`: the URL under which all was visited, else None."""
    return _read_scope(coverage.get("scope"))


@dataclass(frozen=True, slots=True)
class CheckCoverage:
    """Checks that were made under one URL."""

    scope: str
    checks: tuple[str, ...]


def check_coverage(coverage: Mapping[str, object]) -> CheckCoverage | None:
    """Reads `{"url": "http://a.example.com/", "checks": ["exposed-git"]}`; None when it cannot be read."""
    scope, checks = _read_scope(coverage.get("url")), coverage.get("checks")
    if scope is None or not isinstance(checks, list) or len(checks) > MAX_CHECKS:
        return None
    names = tuple(sorted({check for check in checks if isinstance(check, str)}))
    return CheckCoverage(scope, names) if names else None


def _read_scope(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        url = parse_url(value)
    except MalformedUrl:
        return None
    # A prefix must end at a border: `http://a/x` would hold `http://a/xyz` too.
    return str(url) if url.path.endswith("/") and not url.query else None
