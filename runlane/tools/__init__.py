"""The tools that a job can name, and how the records of each category are read. Pure.

`TOOLS` is the only list of tools, `CATEGORIES` the only list of record formats.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from runlane.tools import (
    http_probe,
    ports_scanner,
    screenshot,
    subdomains,
    url_discovery,
    vulnerabilities,
)
from runlane.tools.http_probe import HttpRecord
from runlane.tools.ports_scanner import PortRecord
from runlane.tools.records import Category, MalformedRecord
from runlane.tools.screenshot import ScreenshotRecord
from runlane.tools.subdomains import SubdomainRecord
from runlane.tools.url_discovery import UrlRecord
from runlane.tools.vulnerabilities import FindingRecord

__all__ = [
    "CATEGORIES",
    "TOOLS",
    "Category",
    "FansOut",
    "MalformedRecord",
    "Parsed",
    "Record",
    "Shape",
    "Tool",
    "Toolset",
    "parse_records",
]

Record: TypeAlias = SubdomainRecord | PortRecord | HttpRecord | UrlRecord | FindingRecord | ScreenshotRecord

SAMPLE_REASONS: Final = 5
"""Reasons of refused records that are kept with the attempt."""


class Toolset(StrEnum):
    """Tools that a worker carries whole or not at all; part of the task queue's name."""

    PROBE = "probe"  # our own programs
    PROJECTDISCOVERY = "projectdiscovery"
    NMAP = "nmap"
    BROWSER = "browser"
    CONTAINER = "container"  # connectors: tools that come as an image


class Shape(StrEnum):
    """How the jobs of a batch become child processes."""

    STREAM = "stream"  # one child for the batch; jobs, cancels and outcomes are JSON Lines
    EACH = "each"  # one child for each job, up to the tool's parallelism
    MANY = "many"  # one child for all; dies when its last job is cancelled


class FansOut(StrEnum):
    """What a step has one job for each of."""

    TARGETS = "targets"
    ASSETS = "assets"
    SERVICES = "services"  # open ports of assets
    WEB_SERVICES = "web_services"  # services that answered HTTP


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what it finds, from what, and how it is run."""

    name: str
    category: Category
    fans_out: FansOut
    wall_s: float
    """Limit of one job; the batch's limit follows from it and from `parallelism`."""
    parallelism: int
    """Jobs of a batch that are worked on at once."""
    toolset: Toolset = Toolset.PROBE
    shape: Shape = Shape.STREAM
    max_batch: int = 25
    large_max_batch: int = 100
    heartbeat_s: float = 30.0
    """Silence after which a host counts as frozen."""
    version: str = "1.0.0"
    """Recorded with each attempt."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Records of one result: what could be read, and how much could not."""

    records: Collection[Record]
    quarantined: int
    sample: tuple[str, ...]
    """Up to five reasons, in order of appearance."""


def _many(name: str, category: Category, fans_out: FansOut, wall_s: float) -> Tool:
    """A foreign program that takes a list; large batches would make one bad member cost many."""
    return Tool(
        name,
        category,
        fans_out,
        wall_s=wall_s,
        parallelism=10,
        toolset=Toolset.PROJECTDISCOVERY,
        shape=Shape.MANY,
        large_max_batch=50,
    )


def _each(name: str, category: Category, fans_out: FansOut, toolset: Toolset, wall_s: float) -> Tool:
    """A foreign program with a process for each job."""
    return Tool(
        name,
        category,
        fans_out,
        wall_s=wall_s,
        parallelism=3,
        toolset=toolset,
        shape=Shape.EACH,
        max_batch=6,
        large_max_batch=12,
    )


_ALL: Final = (
    Tool("dnsprobe", Category.SUBDOMAINS, FansOut.TARGETS, wall_s=120, parallelism=5),
    Tool("portprobe", Category.PORTS_SCANNER, FansOut.ASSETS, wall_s=300, parallelism=25),
    Tool("webprobe", Category.HTTP_PROBE, FansOut.SERVICES, wall_s=60, parallelism=10),
    Tool("webcrawl", Category.URL_DISCOVERY, FansOut.WEB_SERVICES, wall_s=300, parallelism=5),
    Tool("webcheck", Category.VULNERABILITIES, FansOut.WEB_SERVICES, wall_s=120, parallelism=5),
    Tool("noop", Category.BENCH, FansOut.TARGETS, wall_s=25_200, parallelism=100),
    _many("naabu", Category.PORTS_SCANNER, FansOut.ASSETS, wall_s=300),
    _many("httpx", Category.HTTP_PROBE, FansOut.SERVICES, wall_s=60),
    _many("nuclei", Category.VULNERABILITIES, FansOut.WEB_SERVICES, wall_s=900),
    _many("katana", Category.URL_DISCOVERY, FansOut.WEB_SERVICES, wall_s=300),
    _each("subfinder", Category.SUBDOMAINS, FansOut.TARGETS, Toolset.PROJECTDISCOVERY, wall_s=900),
    _each("nmap", Category.PORTS_SCANNER, FansOut.ASSETS, Toolset.NMAP, wall_s=300),
    _each("screenshot", Category.SCREENSHOT, FansOut.WEB_SERVICES, Toolset.BROWSER, wall_s=60),
)

TOOLS: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in _ALL})
"""Every tool by its name."""


def _refuse_all(raw: object) -> Record:
    raise MalformedRecord("this category has no records")


CATEGORIES: Final[Mapping[Category, Callable[[object], Record]]] = MappingProxyType(
    {
        Category.SUBDOMAINS: subdomains.parse,
        Category.PORTS_SCANNER: ports_scanner.parse,
        Category.HTTP_PROBE: http_probe.parse,
        Category.URL_DISCOVERY: url_discovery.parse,
        Category.VULNERABILITIES: vulnerabilities.parse,
        Category.SCREENSHOT: screenshot.parse,
        Category.BENCH: _refuse_all,
    }
)
"""Reader of one record, for every category (total: asserted by a test)."""


def parse_records(category: Category, raws: Iterable[object]) -> Parsed:
    """Reads the records of a result; a malformed one is counted and left out, never an error."""
    parse = CATEGORIES[category]
    records: list[Record] = []
    quarantined = 0
    sample: list[str] = []
    for raw in raws:
        try:
            records.append(parse(raw))
        except MalformedRecord as error:
            quarantined += 1
            if len(sample) < SAMPLE_REASONS:
                sample.append(error.reason)
    return Parsed(tuple(records), quarantined, tuple(sample))
