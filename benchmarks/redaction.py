"""What the redaction of one event costs, in multiples of the document's literal rule in two patterns.

Both are measured in turns in one process, by its own CPU time; what counts is the median of their ratios.
`python -m benchmarks.redaction` measures this alone.
"""

import gc
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from benchmarks.report import Bound
from runlane.events import scrub
from runlane.events.literal import CREDENTIAL_WORDS

ROUNDS: Final = 7
CALLS: Final = 400
"""Of each rule in a round."""

LIMIT: Final = 1.5

_NAME: Final = re.compile("|".join(CREDENTIAL_WORDS), re.IGNORECASE)
_VALUE: Final = re.compile(r"sk-|AKIA|-----BEGIN|[A-Za-z0-9+/=_-]{40,}\Z")

_ID: Final = "01a22ba7-d81b-770c-84aa-4d540b75ff{:02x}"
_SERVICE: Final = {
    "port": 443,
    "protocol": "tcp",
    "name": "https",
    "product": "nginx",
    "version": "1.27.3",
    "banner": "HTTP/1.1 200 OK",
    "certificate": {
        "subject": "CN=shop.example.test",
        "issuer": "CN=Example Issuing Authority",
        "serial": "04fa91c2d7",
        "fingerprint_sha256": "5f" * 32,
        "not_after": "2027-03-01T00:00:00Z",
    },
}
PAYLOAD: Final[dict[str, object]] = {
    "asset_id": _ID.format(1),
    "target_id": _ID.format(2),
    "run_id": _ID.format(3),
    "value": "internet-facing-load-balancer-eu.shop.example.test",
    "url": "https://shop.example.test/static/js/vendor/app.js?v=20261130&lang=en",
    "addresses": ["192.0.2.17", "192.0.2.18", "2001:db8::17"],
    "observed_at": "2026-11-30T22:01:17.402183Z",
    "technologies": [
        {"name": name, "version": "3.1", "category": "web"} for name in ("nginx", "react", "go")
    ],
    "services": [_SERVICE, _SERVICE | {"port": 8443}],
    "note": "found by name in the certificate of another host, confirmed by a request",
    "tags": ["production", "team:payments", "env=live", "pci"],
    "counts": {"records": 17, "quarantined": 0, "new": 3, "seen": 14},
    "changes": {"name": {"before": "Shop", "after": "Shop EU"}, "priority": {"before": 3, "after": 5}},
    "metadata": {"source": "httpprobe", "attempt": 1, "worker_id": _ID.format(4), "cursor": None},
    "references": [f"https://docs.example.test/checks/{number}" for number in range(4)],
}
"""About two kilobytes without a credential, as nearly all are."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one call of each rule, and the median ratio of the two."""

    literal_us: float
    own_us: float
    ratio: float

    def bound(self) -> Bound:
        """The ratio with its limit."""
        return Bound("redaction ÷ literal rule, 2 KB payload", self.ratio, LIMIT, False, "×")

    def line(self) -> str:
        """The figures for people."""
        size = len(orjson.dumps(PAYLOAD))
        return f"redaction of {size} bytes: {self.own_us:.0f} µs; the literal rule: {self.literal_us:.0f} µs"


def literal(value: object) -> object:
    """The document's rule, nothing else."""
    if isinstance(value, str):
        return "***" if _VALUE.match(value) else value
    if isinstance(value, dict):
        return {name: literal(inner) for name, inner in value.items() if not _NAME.search(name)}
    if isinstance(value, list):
        return [literal(inner) for inner in value]
    return value


def measure() -> Cost:
    """Measures both rules in turns."""
    literal(PAYLOAD)
    scrub(PAYLOAD)
    pairs = [(_cost(literal), _cost(scrub)) for _ in range(ROUNDS)]
    return Cost(
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
        statistics.median(second / first for first, second in pairs),
    )


def _cost(rule: Callable[[object], object]) -> float:
    gc.disable()
    try:
        started = time.process_time()
        for _ in range(CALLS):
            rule(PAYLOAD)
        return 1_000_000 * (time.process_time() - started) / CALLS
    finally:
        gc.enable()


if __name__ == "__main__":
    cost = measure()
    print(cost.line())
    print(cost.bound().line())
    raise SystemExit(0 if cost.bound().holds else 1)
