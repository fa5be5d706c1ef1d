"""What the programs of ProjectDiscovery have in common."""

from typing import Final

from runlane.tools.adapters.adapter import GIB, Program
from runlane.tools.adapters.options import Options
from runlane.tools.addresses import METADATA

GO_ADDRESS_SPACE: Final = 16 * GIB
"""Their runtime reserves address space in large pieces."""

FORBIDDEN: Final = ",".join(str(network) for network in METADATA)
"""Networks that no option opens, for programs that take a list of them."""


def program(name: str) -> Program:
    """One of their programs. The version is asked for because others have taken the same names."""
    return Program(
        name, (name, "-version", "-disable-update-check"), r"Current (?:\w+ )?[Vv]ersion:? v?(\S+)"
    )


def resolver_arguments(options: Options) -> tuple[str, ...]:
    """The DNS server to ask, if a step names one."""
    return () if options.resolver is None else ("-resolvers", options.resolver)
