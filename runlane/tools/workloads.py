"""How much a job sends, as far as its options say, and what rate it needs to end within its limit. Pure."""

from collections.abc import Mapping
from typing import Final

from runlane.tools import TOOLS, Shape
from runlane.tools.portlists import MalformedPorts, parse_ports

NAABU_TRIES: Final = 2
NMAP_RETRIES: Final = 2
"""For a port that does not answer, unless a step says otherwise."""

NMAP_HOST_S: Final = 240

_SHARE_OF_LIMIT: Final = 0.8
"""Part of a job's limit that sending may take; the rest is for names, banners and a slow start."""


def probes_of(tool_id: str, config: Mapping[str, object]) -> int | None:
    """Packets that a job sends at most; None if its options do not tell, or make no sense."""
    retries = config.get("retries")
    given = retries if isinstance(retries, int) else None
    match tool_id:
        case "portprobe":
            tries = 1
        case "naabu":
            tries = given or NAABU_TRIES
        case "nmap":
            tries = 1 + (NMAP_RETRIES if given is None else given)
        case _:
            return None
    try:
        return len(parse_ports(config.get("ports"))) * tries
    except MalformedPorts:
        return None


def need_per_s(tool_id: str, config: Mapping[str, object]) -> int:
    """What a job must be allowed to send a second, or it runs into its limit; 1 if nothing is known."""
    probes = probes_of(tool_id, config)
    return 1 if probes is None else max(1, -(-probes // int(_SHARE_OF_LIMIT * limit_s(tool_id, config))))


def limit_s(tool_id: str, config: Mapping[str, object]) -> float:
    """How long a job may take: nmap also has a limit of its own, for a host."""
    host_s = config.get("host_s")
    if tool_id != "nmap":
        return TOOLS[tool_id].wall_s
    return min(TOOLS[tool_id].wall_s, host_s if isinstance(host_s, int) else NMAP_HOST_S)


def goes_alone(tool_id: str) -> bool:
    """Whether jobs with shares follow each other in a batch, so that many of them would exceed its limit."""
    return tool_id in TOOLS and TOOLS[tool_id].shape is Shape.MANY
