"""Projects: named sets of rules over assets. Pure.

An asset that any rule fits is in the project. Rules are written by people and compared by statements
(`runlane.db.memberships`), so each has one spelling: two that mean the same are one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_network
from typing import Final
from uuid import UUID

from runlane.errors import Invalid
from runlane.tools.hosts import MalformedHost, normalise_name
from runlane.tools.target_files import check_tags
from runlane.tools.vulnerabilities import Severity

MAX_RULES: Final = 100
"""Of one project."""

_MAX_PORT: Final = 65_535
_MAX_DIGITS: Final = 5
_MAX_TECHNOLOGY: Final = 200


class RuleKind(StrEnum):
    """What a rule looks at."""

    DOMAIN = "domain"
    """The asset's name: this one, and every one below it."""
    CIDR = "cidr"
    """The asset's addresses."""
    TARGET = "target"
    """The target that it belongs to."""
    GROUP = "group"
    """A group that its target is in."""
    TAG = "tag"
    """A tag of its target."""
    PORT = "port"
    """A port on which something answers."""
    TECHNOLOGY = "technology"
    """What one of its services runs, by name."""
    SEVERITY = "severity"
    """The severity that an open finding has at least."""


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One rule in its one spelling. Of a group: its name or its id."""

    kind: RuleKind
    value: str


def parse_rules(said: Sequence[Rule]) -> tuple[dict[str, Rule], dict[str, str]]:
    """Rules in their one spelling, and what is wrong with those that mean nothing: both by path."""
    faults: dict[str, str] = {}
    if not said:
        faults["rules"] = "a project without a rule has no asset"
    if len(said) > MAX_RULES:
        return {}, {"rules": f"at most {MAX_RULES} rules are possible"}
    kept: dict[str, Rule] = {}
    for number, rule in enumerate(said):
        path = f"rules.{number}.value"
        try:
            kept[path] = Rule(rule.kind, _READERS[rule.kind](rule.value))
        except ValueError as error:
            faults[path] = str(error)
    return kept, faults


def _domain(text: str) -> str:
    try:
        return normalise_name(text.removeprefix("*."))
    except MalformedHost as error:
        raise ValueError(str(error)) from error


def _cidr(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError("a network is written such as 192.0.2.0/24, without host bits") from error


def _target(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError as error:
        raise ValueError("the id of a target is required") from error


def _group(text: str) -> str:
    if not text:
        raise ValueError("the name or the id of a group is required")
    return text


def _tag(text: str) -> str:
    try:
        return next(check_tags([text]))
    except Invalid as error:
        raise ValueError(error.detail) from error


def _port(text: str) -> str:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or not 1 <= int(text) <= _MAX_PORT:
        raise ValueError(f"a port is a number from 1 to {_MAX_PORT}")
    return str(int(text))


def _technology(text: str) -> str:
    name = text.strip().lower()
    if not 1 <= len(name) <= _MAX_TECHNOLOGY:
        raise ValueError(f"a technology has 1 to {_MAX_TECHNOLOGY} characters")
    return name


def _severity(text: str) -> str:
    if text not in set(Severity):
        raise ValueError(f"one of {', '.join(Severity)} is possible")
    return text


_READERS: Final[Mapping[RuleKind, Callable[[str], str]]] = {
    RuleKind.DOMAIN: _domain,
    RuleKind.CIDR: _cidr,
    RuleKind.TARGET: _target,
    RuleKind.GROUP: _group,
    RuleKind.TAG: _tag,
    RuleKind.PORT: _port,
    RuleKind.TECHNOLOGY: _technology,
    RuleKind.SEVERITY: _severity,
}
