"""Figures in the text format of Prometheus: few names, with few labels whose values are our own words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Kind(StrEnum):
    """What a figure does with time."""

    COUNTER = "counter"
    """Only grows, from the start of the process or of the installation."""
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """All values of one name."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def render(families: Iterable[Family]) -> str:
    """The text that a scraper reads."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(sample.labels)} {sample.value!r}" for sample in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
