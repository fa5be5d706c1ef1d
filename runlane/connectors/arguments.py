"""The argument list of a container: literal texts, and places where a value of the job is put.

A value stands alone, or behind the name of an option that the manifest writes out. What comes from outside
was read by its grammar before; that it does not begin with a hyphen is asked once more, so that no target can
ever become an option.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runlane.connectors.faults import Part
from runlane.connectors.options import Option
from runlane.tools import FansOut
from runlane.tools.adapters.adapter import ToolJob
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import Flag, Options

MAX_ARGUMENTS: Final = 64
MAX_LENGTH: Final = 1_000
"""Characters of one argument."""

_PLACE: Final = re.compile(r"(--?[A-Za-z0-9][A-Za-z0-9_.-]*=?)?\{([a-z0-9]+(?::[a-z0-9_]+)?)\}")

_OF_SERVICES: Final = (FansOut.SERVICES, FansOut.WEB_SERVICES)


@dataclass(frozen=True, slots=True)
class Known:
    """What a job of this manifest has values for."""

    fans_out: FansOut
    has_address: bool
    options: Mapping[str, Option]
    ipv6: tuple[str, ...]


def read_arguments(part: Part, key: str, known: Known) -> tuple[str, ...]:
    """Reads a list of literal arguments and places."""
    arguments = part.lines(key, MAX_ARGUMENTS, MAX_LENGTH)
    for number, argument in enumerate(arguments):
        is_literal = "{" not in argument and "}" not in argument
        fault = None if is_literal else _place_fault(argument, known)
        if fault is not None:
            part.fault(f"{key}.{number}", fault)
    return arguments


def fill(arguments: Sequence[str], job: ToolJob, options: Options, known: Known) -> Iterator[str]:
    """The arguments of one job.

    Raises:
        BadTarget: the job has no such value, or it begins with a hyphen.
    """
    for argument in arguments:
        place = _PLACE.fullmatch(argument)
        if place is None:
            yield argument
        elif place[2] == "ipv6":
            yield from known.ipv6 if ":" in (job.address or job.host) else ()
        elif (flag := _flag(place[2], known)) is not None:
            name, option = flag
            yield from option.argv if option.value(name, options) is True else ()
        else:
            value = _value(place[2], job, options, known)
            if value.startswith("-"):
                raise BadTarget(f"{place[2]}: a value never begins with a hyphen")
            yield (place[1] or "") + value


def _place_fault(argument: str, known: Known) -> str | None:
    place = _PLACE.fullmatch(argument)
    if place is None:
        return "a place stands alone, or behind the name of an option as in --name={host}"
    prefix, name = place[1], place[2]
    match name.partition(":"):
        case ("option", _, option):
            if option not in known.options:
                return f"there is no option {option!r}"
            if prefix and isinstance(known.options[option].kind, Flag):
                return "a flag stands alone: it brings its own argv"
        case ("host", "", ""):
            pass
        case ("address", "", ""):
            if not known.has_address:
                return "an address is known only with network: targets"
        case ("port", "", ""):
            if known.fans_out not in _OF_SERVICES:
                return "a port is known only with fans_out: services or web_services"
        case ("url", "", ""):
            if known.fans_out is not FansOut.WEB_SERVICES:
                return "a URL is known only with fans_out: web_services"
        case ("ports", "", ""):
            if "ports" not in known.options:
                return "an option ports of type ports is needed"
        case ("ipv6", "", ""):
            if prefix:
                return "it stands alone: it brings its own argv"
        case _:
            return "there are {host} {address} {port} {url} {ports} {ipv6} and {option:name}"
    return None


def _flag(name: str, known: Known) -> tuple[str, Option] | None:
    option_name = name.removeprefix("option:")
    option = known.options.get(option_name) if option_name != name else None
    return (option_name, option) if option is not None and isinstance(option.kind, Flag) else None


def _value(name: str, job: ToolJob, options: Options, known: Known) -> str:
    option_name = "ports" if name == "ports" else name.removeprefix("option:")
    if option_name != name or name == "ports":
        return str(known.options[option_name].value(option_name, options))
    values = {"host": job.host, "address": job.address, "port": job.port, "url": job.url}
    value = values[name]
    if value is None:
        raise BadTarget(f"target.{name}: the job has none")
    return str(value)
