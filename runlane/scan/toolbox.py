"""What this host can run: a tool set is carried whole or not at all, and found out at the start."""

import asyncio
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import structlog

from runlane.errors import Unavailable
from runlane.scan.children import ChildSpec, Launcher
from runlane.scan.confine import Limits
from runlane.tools import TOOLS
from runlane.tools.adapters import ADAPTERS, programs_of
from runlane.tools.adapters.adapter import Program

log = structlog.get_logger(__name__)

VERSION_S: Final = 20.0
"""Seconds that a program has to say its version."""

_MAX_VERSION: Final = 50
_LIMITS: Final = Limits(address_space_bytes=None)  # how much a program reserves is its adapter's business
_NOT_PRINTABLE: Final = re.compile(r"[^\x21-\x7e]")


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tool sets that were found whole."""

    slots: Mapping[str, int] = field(default_factory=dict)
    """Batches at once, by tool set."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where a program is, by the name that adapters know it by."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of each tool that is made of programs."""


async def find_tools(slots: Mapping[str, int], launcher: Launcher) -> Toolbox:
    """Looks for the programs of each tool set on PATH and asks them for their versions.

    A set with a program that is missing, does not run, or is another one of the same name is left out.
    """
    kept: dict[str, int] = {}
    paths: dict[str, str] = {}
    versions: dict[str, str] = {}
    for toolset, count in slots.items():
        found = {program.name: await _find(program, launcher) for program in programs_of(toolset)}
        missing = sorted(name for name, place in found.items() if place is None)
        if missing:
            log.info("tool_set_left_out", toolset=toolset, missing=missing)
            continue
        kept[toolset] = count
        places = {name: place for name, place in found.items() if place is not None}
        paths |= {name: path for name, (path, _) in places.items()}
        for tool in TOOLS.values():
            if tool.toolset == toolset and tool.name in ADAPTERS:
                versions[tool.name] = places[ADAPTERS[tool.name].programs[0].name][1]
    return Toolbox(kept, paths, versions)


async def _find(program: Program, launcher: Launcher) -> tuple[str, str] | None:
    for name in (program.name, *program.others):
        path = shutil.which(name)
        if path is None:
            continue
        version = await _version_of(program, path, launcher)
        if version is not None:
            return path, version
        log.warning("program_not_recognised", program=name, path=path)
    return None


async def _version_of(program: Program, path: str, launcher: Launcher) -> str | None:
    spec = ChildSpec(
        attempt=f"version/{uuid4()}",
        wall_s=VERSION_S,
        argv=[path, *program.version_argv[1:]],
        output_cap_bytes=65_536,
        limits=_LIMITS,
    )
    try:
        async with asyncio.timeout(VERSION_S + 5), await launcher.launch(spec) as child:
            child.stdin.close()
            said = b"\n".join([line async for line in child.lines()])
            await child.wait()
            said += b"\n" + child.stderr_tail
    except (Unavailable, TimeoutError) as error:
        log.warning("version_not_told", program=program.name, error=str(error))
        return None
    match = re.search(program.version_sign, said.decode(errors="replace"))
    return _NOT_PRINTABLE.sub("", match[1])[:_MAX_VERSION] if match else None
