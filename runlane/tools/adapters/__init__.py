"""Tools that are made of foreign programs, one module each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from runlane.tools import TOOLS
from runlane.tools.adapters import chromium, httpx, katana, naabu, nmap, nuclei, subfinder
from runlane.tools.adapters.adapter import Adapter, Program
from runlane.tools.adapters.options import faults
from runlane.tools.providers import ProviderKeys, has_written_out

ADAPTERS: Final[Mapping[str, Adapter]] = MappingProxyType(
    {
        "subfinder": subfinder.ADAPTER,
        "naabu": naabu.ADAPTER,
        "httpx": httpx.ADAPTER,
        "nuclei": nuclei.ADAPTER,
        "katana": katana.ADAPTER,
        "nmap": nmap.ADAPTER,
        "screenshot": chromium.ADAPTER,
    }
)
"""The adapter of every tool that is not of shape `stream` (total: asserted by a test)."""


def programs_of(toolset: str) -> tuple[Program, ...]:
    """What a host needs to carry a tool set; nothing for our own probes."""
    names = [tool.name for tool in TOOLS.values() if tool.toolset == toolset and tool.name in ADAPTERS]
    return tuple(program for name in names for program in ADAPTERS[name].programs)


def config_faults(tool_id: str, config: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with a step's options, by option; our own probes judge theirs themselves."""
    adapter = ADAPTERS.get(tool_id)
    if adapter is None:
        return {}
    written = {
        name: "references to secrets expected, not keys"
        for name, kind in adapter.schema.items()
        if isinstance(kind, ProviderKeys) and has_written_out(config.get(name))
    }
    return {**faults(adapter.schema, config), **written}


__all__ = ["ADAPTERS", "config_faults", "programs_of"]
