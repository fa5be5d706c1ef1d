"""Every dataclass that travels through Temporal: inputs and results, and what is in them.

Run as a program, before each release, it writes down which of their fields have no default:
`python -m tests.replay.travelling`.
"""

import inspect
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from temporalio import activity, workflow

from activities.fires import FireActivities
from activities.results import ResultActivities
from activities.runs import RunActivities
from activities.sweeps import SweepActivities
from runlane.scan.activity import ScanActivities
from workflows.registration import WORKFLOWS

PROMISED: Final = Path(__file__).parent / "promised.json"
ACTIVITIES: Final = (RunActivities, ResultActivities, SweepActivities, FireActivities, ScanActivities)


def travelling() -> dict[str, type]:
    """The dataclasses by their full names."""
    found: dict[str, type] = {}
    for hint in _hints():
        _collect(hint, found)
    return dict(sorted(found.items()))


def required_of(cls: type) -> list[str]:
    """Fields without a default: every sender must know them."""
    return [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]


def sample_of(hint: object) -> object:
    """A value of a type, as JSON has it; of a dataclass with nothing but the fields that must be there."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return {name: sample_of(hints[name]) for name in required_of(hint)}
    if origin in (Union, UnionType):
        return None if NoneType in arguments else sample_of(arguments[0])
    if origin in (list, tuple, set, frozenset) or (origin is not None and "Sequence" in str(origin)):
        return [sample_of(arguments[0])] if arguments else []
    if origin is not None or hint is object:
        return {}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint)).value
    return _PLAIN[hint]


_PLAIN: Final[dict[object, object]] = {
    str: "x",
    int: 1,
    float: 1.5,
    bool: True,
    NoneType: None,
    UUID: str(UUID(int=1)),
    datetime: datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
}


def _hints() -> Iterator[object]:
    for holder in ACTIVITIES:
        for _, function in inspect.getmembers(holder, inspect.isfunction):
            if defined := activity._Definition.from_callable(function):
                yield from [*(defined.arg_types or []), defined.ret_type]
    for cls in WORKFLOWS:
        known = workflow._Definition.must_from_class(cls)
        yield from [*(known.arg_types or []), known.ret_type]


def _collect(hint: object, found: dict[str, type]) -> None:
    for inner in get_args(hint):
        _collect(inner, found)
    if isinstance(hint, type) and is_dataclass(hint):
        name = f"{hint.__module__}.{hint.__qualname__}"
        if name not in found:
            found[name] = hint
            for inner in get_type_hints(hint).values():
                _collect(inner, found)


if __name__ == "__main__":
    promised = {name: required_of(cls) for name, cls in travelling().items()}
    PROMISED.write_text(json.dumps(promised, indent=1) + "\n")
