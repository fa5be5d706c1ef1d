"""Endpoints outside of the platform: their kinds, what they get, and what becomes of a delivery. Pure.

Sources: Event bridge, Lanes and What leaves the platform; Standard Webhooks, which most receivers expect.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from runlane.events import EVENT_POLICY, Severity, find_leaf


class Kind(StrEnum):
    """What an endpoint is, as in `integrations.kind`."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    TELEGRAM = "telegram"
    GITHUB = "github"
    JIRA = "jira"
    LINEAR = "linear"


class DeliveryState(StrEnum):
    """What has become of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    SKIPPED = "skipped"


class Answer(StrEnum):
    """What the endpoint said to an attempt, or did not."""

    ACCEPTED = "accepted"
    TROUBLED = "troubled"
    """No answer, or one that says that a later attempt may be answered otherwise."""
    REFUSED = "refused"
    """It will hardly take it later."""
    GONE = "gone"


TEST: Final = "integration.test"
"""Type of what the test of an endpoint sends; no event of the bus."""

TICKETS: Final = frozenset({Kind.GITHUB, Kind.JIRA, Kind.LINEAR})
"""Kinds that keep a ticket for each finding: they get what is about findings, and nothing else."""

_OF_FINDINGS: Final = "vulnerability."

_NEVER: Final = ("integration.delivery.", "integration.endpoint.", "integration.sync.", "integration.ticket.")
_NEVER_DOMAINS: Final = frozenset({"notification", "dead_letter"})
"""What deliveries cause is never delivered: an endpoint that fails would be told of its failures."""

_LOUDNESS: Final[Mapping[str, int]] = MappingProxyType({str(each): at for at, each in enumerate(Severity)})

PAUSES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=10),
)
"""Between attempts, give or take a fifth: eight attempts in about 28 hours."""

JITTER: Final = 0.2

MAX_REFUSALS: Final = 3
"""Attempts that are refused until a delivery has failed."""

MOST_PATIENCE: Final = timedelta(hours=24)
"""Longest `Retry-After` that is believed."""

MAY_CHANGE: Final = frozenset({408, 409, 425, 429})
"""Statuses below 500 that say: later."""

BREAKS_AFTER: Final = 5
"""Failures in a row after which an endpoint is left alone for a while."""

FIRST_BREAK: Final = timedelta(seconds=30)
LONGEST_BREAK: Final = timedelta(minutes=10)

GIVEN_UP_AFTER: Final = timedelta(days=5)
"""An endpoint that has only failed for this long is disabled."""

DIGEST_ABOVE: Final = 20
"""Events of one workspace, type and run in `DIGEST_WINDOW` that are delivered one by one."""

DIGEST_WINDOW: Final = timedelta(minutes=1)


def may_leave(event_type: str) -> bool:
    """Whether events of this type are delivered to endpoints at all."""
    leaf = find_leaf(event_type)
    if leaf is None or not leaf.is_outbound or leaf.policy.severity is Severity.NONE:
        return False
    return not event_type.startswith(_NEVER) and event_type.partition(".")[0] not in _NEVER_DOMAINS


def severity_of(event_type: str, data: Mapping[str, object]) -> str:
    """How severe an event is: a finding says so itself, others are as the policy has them."""
    said = data.get("severity")
    if event_type.startswith(_OF_FINDINGS) and isinstance(said, str) and said in _LOUDNESS:
        return said
    policy = EVENT_POLICY.get(event_type)
    return str(policy.severity) if policy else str(Severity.NONE)


def severities_from(least: str) -> list[str]:
    """The severities that are `least` or worse."""
    return [name for name, loudness in _LOUDNESS.items() if loudness >= _LOUDNESS[least]]


def filter_faults(kind: Kind, types: Collection[str]) -> dict[str, str]:
    """What is wrong with the events that an endpoint asks for, by path.

    An entry is a type, or a domain followed by `.*`.
    """
    leaving = [name for name in EVENT_POLICY if may_leave(name) and is_for(kind, name)]
    return {
        f"events.{number}": "no event that is delivered to such an endpoint"
        for number, entry in enumerate(types)
        if not any(fits(entry, name) for name in leaving)
    }


def fits(entry: str, event_type: str) -> bool:
    """Whether an entry of a filter means events of this type."""
    if entry.endswith(".*"):
        return event_type.startswith(entry[:-1])
    return entry == event_type


def is_for(kind: Kind, event_type: str) -> bool:
    """Whether endpoints of this kind can do anything with events of this type."""
    return kind not in TICKETS or event_type.startswith(_OF_FINDINGS)


def judge(status: int) -> Answer:
    """What a status of HTTP means. A redirect is not followed, so it is a failure."""
    if 200 <= status < 300:
        return Answer.ACCEPTED
    if status == 410:
        return Answer.GONE
    if 400 <= status < 500 and status not in MAY_CHANGE:
        return Answer.REFUSED
    return Answer.TROUBLED


@dataclass(frozen=True, slots=True)
class Tried:
    """A delivery after an attempt. `refusals`: attempts that were refused, with this one."""

    answer: Answer
    attempts: int
    refusals: int
    retry_after_s: float | None = None
    is_test: bool = False


def next_pause(tried: Tried, chance: float) -> timedelta | None:
    """How long until the next attempt; None: that was the last one. `chance`: from 0 to 1."""
    is_over = tried.answer in {Answer.ACCEPTED, Answer.GONE} or tried.is_test
    if is_over or tried.refusals >= MAX_REFUSALS or tried.attempts > len(PAUSES):
        return None
    pause = PAUSES[tried.attempts - 1] * (1 - JITTER + 2 * JITTER * chance)
    return max(pause, patience(tried.retry_after_s))


def patience(retry_after_s: float | None) -> timedelta:
    """How long an endpoint wants to be left alone, as far as that is believed."""
    return timedelta(seconds=min(max(retry_after_s or 0.0, 0.0), MOST_PATIENCE.total_seconds()))


def break_of(failures: int) -> timedelta:
    """How long an endpoint is left alone after so many failures in a row."""
    if failures < BREAKS_AFTER:
        return timedelta(0)
    doublings = min(failures - BREAKS_AFTER, 10)
    return min(FIRST_BREAK * (1 << doublings), LONGEST_BREAK)


def is_given_up(first_failure: datetime, last_failure: datetime) -> bool:
    """Whether an endpoint is disabled, by its first and last failure since its last success.

    By time and not by number, so that a burst disables nothing: this far apart are two failures at least.
    """
    return last_failure - first_failure >= GIVEN_UP_AFTER
