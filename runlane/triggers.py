"""What starts runs of a saved definition: events, each perhaps with a filter. Pure.

Form of an entry of `on`: the name of an event, or an object with it as `event` and with filters:
`severity`, `tags`, `groups`, `tools`, `definitions`, `projects`.
An event fits an entry when each filter that is given has what the event is about. Events of another workspace
never fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from runlane.tools.vulnerabilities import Severity

REQUEST: Final = "request"
"""What may start a run of any definition: whoever asks."""

MAX_TRIGGERS: Final = 20
"""Entries of one definition, and values of one filter."""

_MAX_VALUE: Final = 100

_ABOUT: Final = ("tags", "groups")
_FOUND: Final = (*_ABOUT, "tools")
_RUN: Final = (*_ABOUT, "definitions")

EVENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "target.created": _ABOUT,
        "asset.discovered": _FOUND,
        "asset.service.discovered": _FOUND,
        "asset.port.opened": _FOUND,
        "asset.url.discovered": _FOUND,
        "asset.technology.detected": _FOUND,
        "vulnerability.detected": (*_FOUND, "severity", "projects"),
        "project.assets.added": (*_ABOUT, "projects"),
        "workflow.run.completed": _RUN,
        "workflow.run.failed": _RUN,
    }
)
"""Events that may start runs, each with its filters. All are about targets, and the run is about these."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """One entry. `filters`: by name, what the event must be about one of."""

    event: str
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> object:
        """The form that is saved."""
        if not self.filters:
            return self.event
        return {"event": self.event, **{name: list(values) for name, values in self.filters.items()}}


def parse_triggers(raw: object, faults: dict[str, str]) -> tuple[Trigger, ...]:
    """Reads `on`; what is wrong with it goes into `faults`, by its path."""
    entries = raw if isinstance(raw, list) else [raw]
    if len(entries) > MAX_TRIGGERS:
        faults["on"] = f"at most {MAX_TRIGGERS} entries are possible"
        return ()
    found = [_entry(entry, number, faults) for number, entry in enumerate(entries)]
    kept = (each for each in found if each is not None and each.event != REQUEST)
    return tuple({repr(each.as_json()): each for each in kept}.values())


def _entry(raw: object, number: int, faults: dict[str, str]) -> Trigger | None:
    said = {"event": raw} if isinstance(raw, str) else raw
    if not isinstance(said, Mapping):
        faults[f"on.{number}"] = "the name of an event, or an object with its name as `event`, is required"
        return None
    event = said.get("event")
    if event == REQUEST and len(said) == 1:
        return Trigger(REQUEST)
    if not isinstance(event, str) or event not in EVENTS:
        faults["on" if isinstance(raw, str) else f"on.{number}.event"] = (
            f"one or several of {', '.join((REQUEST, *EVENTS))} are possible"
        )
        return None
    filters: dict[str, tuple[str, ...]] = {}
    for key, values in said.items():
        if key == "event":
            continue
        fault = _filter_fault(event, str(key), values)
        if fault:
            faults[f"on.{number}.{str(key)[:64]}"] = fault
        else:
            filters[str(key)] = tuple([values] if isinstance(values, str) else values)
    return Trigger(event, filters)


def _filter_fault(event: str, key: str, values: object) -> str | None:
    if key not in EVENTS[event]:
        return f"no filter of {event}; there are {', '.join(EVENTS[event])}"
    texts = [values] if isinstance(values, str) else values
    if not isinstance(texts, list) or not 1 <= len(texts) <= MAX_TRIGGERS:
        return f"a text or a list of up to {MAX_TRIGGERS} is required"
    if not all(isinstance(text, str) and 1 <= len(text) <= _MAX_VALUE for text in texts):
        return f"texts of 1 to {_MAX_VALUE} characters are required"
    if key == "severity" and not set(texts) <= set(Severity):
        return f"one or several of {', '.join(Severity)} are possible"
    return None
