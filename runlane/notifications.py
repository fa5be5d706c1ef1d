"""Notifications: whom an event is told to, and when many become one digest. Pure.

Rules of a workspace say who is told; mutes say what is not told for a while. Unless a workspace has a rule of
its own called `default`, everybody is told of what is at least of medium severity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, get_args
from uuid import UUID

from runlane.events import EVENT_POLICY, BusEvent, Lane, Severity, is_subscribed
from runlane.events.payloads import FindingSeverity

LEVELS: Final = tuple(Severity)
"""Severities, the least first."""

DEFAULT: Final = "default"
"""Name of the rule that a workspace has from the start."""

MOST_ALONE: Final = 20
"""A minute, of one recipient, type and run, that come one by one. Source: design, Event bridge."""

MINUTE: Final = timedelta(minutes=1)

IDLE: Final = timedelta(minutes=1)
"""A digest takes in what follows, until none has come for so long."""

IDLE_OF_ACT: Final = timedelta(minutes=10)
"""Of what one act sets off: a large cancel is done in portions."""

LONGEST: Final = timedelta(hours=1)
"""How long a digest takes in more at most."""

FIRST_IDS: Final = 10
"""Events that a digest names; of the others it has the number."""

_FINDINGS: Final = "vulnerability."
_DETAILS: Final = ("name", "value", "url", "check_id", "step_id", "reason", "error")
_MAX_DETAIL: Final = 200


@dataclass(frozen=True, slots=True)
class Rule:
    """Who is told what. Without types: all; without recipients: everybody who may read notifications."""

    name: str
    types: tuple[str, ...] = ()
    least: Severity = Severity.MEDIUM
    target_id: UUID | None = None
    group_id: UUID | None = None
    recipients: tuple[str, ...] = ()
    is_on: bool = True


@dataclass(frozen=True, slots=True)
class Mute:
    """What is not told for now: by a rule, of a type, or about a target; exactly one of these."""

    rule: str | None = None
    type: str | None = None
    target_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Audience:
    """What decides in one workspace. `everybody`: names of all who may be told."""

    rules: tuple[Rule, ...]
    mutes: tuple[Mute, ...]
    everybody: frozenset[str]

    @property
    def needs_targets(self) -> bool:
        """Whether it matters which target an event is about."""
        return any(each.target_id or each.group_id for each in self.rules) or any(
            each.target_id for each in self.mutes
        )


@dataclass(frozen=True, slots=True)
class About:
    """An event as rules judge it. `groups`: those that its target is in."""

    type: str
    severity: Severity
    target_id: UUID | None = None
    groups: frozenset[UUID] = frozenset()


def with_default(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a workspace, with the default one unless it has one of that name."""
    own = tuple(rules)
    return own if any(each.name == DEFAULT for each in own) else (Rule(DEFAULT), *own)


def may_notify(event_type: str) -> bool:
    """Whether events of this type are told to anybody at all."""
    policy = EVENT_POLICY.get(event_type)
    return (
        policy is not None
        and policy.severity is not Severity.NONE
        and is_subscribed(Lane.NOTIFICATIONS, event_type)
    )


def fits(event_type: str, pattern: str) -> bool:
    """Whether a type is meant by a pattern: a type, or the beginning of one (`job`, `workflow.run`)."""
    return event_type == pattern or event_type.startswith(f"{pattern}.")


def is_known(pattern: str) -> bool:
    """Whether a pattern means any event that may notify."""
    return any(fits(name, pattern) and may_notify(name) for name in EVENT_POLICY)


def loudness(event_type: str, data: Mapping[str, object]) -> Severity:
    """How loud an event is: by its policy; a finding by its own severity."""
    own = data.get("severity")
    if event_type.startswith(_FINDINGS) and own in get_args(FindingSeverity):
        return Severity(str(own))
    policy = EVENT_POLICY.get(event_type)
    return policy.severity if policy else Severity.NONE


def is_echo(event: BusEvent) -> bool:
    """Whether an event says that this lane gave one up: to tell that might fail alike, again and again."""
    sent = event.envelope
    return sent.type.startswith("dead_letter.") and sent.data.get("lane") == Lane.NOTIFICATIONS


def recipients_of(about: About, audience: Audience) -> frozenset[str]:
    """Whom an event is told to: whoever any rule names, unless it is muted."""
    mutes = audience.mutes
    if any(
        (mute.type is not None and fits(about.type, mute.type))
        or (mute.target_id is not None and mute.target_id == about.target_id)
        for mute in mutes
    ):
        return frozenset()
    silent = {mute.rule for mute in mutes}
    told: set[str] = set()
    for rule in audience.rules:
        if rule.is_on and rule.name not in silent and _matches(rule, about):
            told |= set(rule.recipients) or audience.everybody
    return audience.everybody & told


def digest_key(event: BusEvent) -> str:
    """What notifications of one recipient have in common that may become one: type, run and cause."""
    sent = event.envelope
    return f"{sent.type}/{sent.data.get('run_id') or ''}/{cause_of(event) or ''}"


def cause_of(event: BusEvent) -> str | None:
    """The act of one person that set this off in many places, if it was one."""
    return event.envelope.attributes.get("cause")


def count_alone(events: int, recent: int, *, is_digest_open: bool, is_caused: bool) -> int:
    """How many of these events come one by one, of which `recent` like them did in the last minute."""
    if is_digest_open or is_caused:
        return 0
    return min(events, max(0, MOST_ALONE - recent))


def sentence(event_type: str, events: int, data: Mapping[str, object]) -> str:
    """A notification as a line for people."""
    words = event_type.replace(".", " ").replace("_", " ")
    if events > 1:
        return f"{events} times {words}"
    details = [str(data[name]) for name in _DETAILS if data.get(name)]
    return ": ".join([words, *details[:2]])[:_MAX_DETAIL]


def _matches(rule: Rule, about: About) -> bool:
    return (
        LEVELS.index(about.severity) >= LEVELS.index(rule.least)
        and (not rule.types or any(fits(about.type, pattern) for pattern in rule.types))
        and rule.target_id in {None, about.target_id}
        and (rule.group_id is None or rule.group_id in about.groups)
    )
