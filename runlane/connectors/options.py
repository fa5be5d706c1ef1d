"""Options that a manifest declares: a type with bounds and a default; a step cannot say anything else."""

import re
from dataclasses import dataclass
from typing import Final

from runlane.connectors.faults import Part
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import COMMON, Choice, Flag, Kind, Options, Ports, Whole
from runlane.tools.portlists import format_ports

MAX_OPTIONS: Final = 32
MAX_WORDS: Final = 32

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]{0,63}")
_TYPES: Final = ("whole", "flag", "choice", "ports")
HIGHEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option."""

    kind: Kind
    default: int | bool | str | None = None
    """None for ports: the usual ones."""
    argv: tuple[str, ...] = ()
    """What a flag stands for in the argument list when it is true."""

    def value(self, name: str, options: Options) -> int | bool | str:
        """What a step says of it, or the default; excluded ports are left out.

        Raises:
            BadTarget: no port is left.
        """
        if isinstance(self.kind, Ports):
            ports = format_ports(options.ports(name))
            if not ports:
                raise BadTarget("every port is excluded")
            return ports
        said = options.values.get(name)
        if isinstance(said, int | str) and self.kind.fault(said) is None:
            return said
        return False if self.default is None else self.default

    def as_json(self) -> dict[str, object]:
        """As it stands in a manifest."""
        match self.kind:
            case Whole(low, high):
                return {"type": "whole", "low": low, "high": high, "default": self.default}
            case Choice(allowed):
                return {"type": "choice", "of": list(allowed), "default": self.default}
            case Flag():
                return {"type": "flag", "default": self.default, "argv": list(self.argv)}
            case _:
                return {"type": "ports"}


def read_options(part: Part) -> dict[str, Option]:
    """Reads `options`, in the order in which they are written."""
    if len(part.values) > MAX_OPTIONS:
        part.fault("*", f"at most {MAX_OPTIONS} options are possible")
    options: dict[str, Option] = {}
    for name in list(part.values)[:MAX_OPTIONS]:
        if not NAME.fullmatch(name) or name in COMMON:
            part.fault(name[:64], "a name is 1 to 32 of a-z, 0-9 and _, and none that every tool takes")
        option = _read_option(part.child(name))
        if isinstance(option.kind, Ports) and name != "ports":
            part.fault(name, "an option of type ports is called ports")
        options[name] = option
    return options


def _read_option(part: Part) -> Option:
    match part.one_of("type", _TYPES):
        case "whole":
            part.only(frozenset({"type", "low", "high", "default"}), {})
            low = part.whole("low", 0, 0, HIGHEST)
            high = part.whole("high", HIGHEST, low, HIGHEST)
            if "default" not in part.values:
                part.fault("default", "a default is required")
            return Option(Whole(low, high), part.whole("default", low, low, high))
        case "choice":
            part.only(frozenset({"type", "of", "default"}), {})
            allowed = part.lines("of", MAX_WORDS, 64) or ("",)
            if not all(WORD.fullmatch(word) for word in allowed):
                part.fault("of", "words of letters, digits and _.,- are required, not beginning with -")
            return Option(Choice(allowed), part.one_of("default", allowed))
        case "flag":
            part.only(frozenset({"type", "default", "argv"}), {})
            return Option(Flag(), part.flag("default"), part.lines("argv", 16, 200))
        case _:
            part.only(frozenset({"type"}), {})
            return Option(Ports())
