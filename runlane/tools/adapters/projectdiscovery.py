"""What the programs of ProjectDiscovery have in common."""

import json
from typing import Final

from runlane.tools.adapters.adapter import GIB, Program, Workplace
from runlane.tools.adapters.options import Options
from runlane.tools.addresses import METADATA

GO_ADDRESS_SPACE: Final = 16 * GIB
"""Their runtime reserves address space in large pieces."""

FORBIDDEN: Final = ",".join(str(network) for network in METADATA)
"""Networks that no option opens, for programs that take a list of them."""

_CONFIG: Final = "config.yaml"


def program(name: str) -> Program:
    """One of their programs. The version is asked for because others have taken the same names."""
    return Program(
        name, (name, "-version", "-disable-update-check"), r"Current (?:\w+ )?[Vv]ersion:? v?(\S+)"
    )


def header_files(options: Options, flag: str, place: Workplace) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Arguments and files that add the step's headers, by the program's own name of the option.

    They stand in a configuration file, which only this user can read: arguments are there for everybody. JSON
    is YAML, which it expects.
    """
    headers = options.headers("headers")
    if not headers:
        return (), {}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return ("-config", f"{place.folder}/{_CONFIG}"), {_CONFIG: json.dumps({flag: lines}).encode()}


def resolver_arguments(options: Options) -> tuple[str, ...]:
    """The DNS server to ask, if a step names one."""
    return () if options.resolver is None else ("-resolvers", options.resolver)
