"""How this host runs the tool of a claim: a probe, a foreign program or a container; or why it does not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from runlane.connectors import Manifest, read_manifest
from runlane.errors import Defect, Invalid
from runlane.scan.batch import Batch, BatchSpec, StreamBatch
from runlane.scan.contained import ContainerRunner
from runlane.scan.container_host import ContainerHost
from runlane.scan.each import EachBatch
from runlane.scan.many import ManyBatch
from runlane.scan.programs import ProgramHost, ProgramRunner
from runlane.scan.wire import Claimed
from runlane.tools import TOOLS, Tool
from runlane.tools.adapters import ADAPTERS
from runlane.tools.adapters.adapter import Each, Many

Begin: TypeAlias = Callable[[BatchSpec, Callable[[], None]], Batch]


@dataclass(frozen=True, slots=True)
class Carried:
    """A tool that this host runs."""

    tool: Tool
    version: str
    begin: Begin
    """Makes a batch in the tool's shape; the second argument is told whenever a job has ended."""


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Why the jobs of a claim are sent back, uncharged."""

    reason: str


def carry(programs: ProgramHost, containers: ContainerHost | None, claimed: Claimed) -> Carried | NotCarried:
    """What the host does about a claim. Nothing that the API says of a tool is believed."""
    if claimed.connector is not None:
        return _connector(containers, claimed)
    tool = TOOLS.get(claimed.tool_id)
    if tool is None:
        return NotCarried(f"this host does not know the tool {claimed.tool_id}")
    adapter = ADAPTERS.get(tool.name)
    if adapter is None:
        return Carried(tool, tool.version, lambda spec, ended: StreamBatch(programs.launcher, spec, ended))
    if tool.name not in programs.versions:
        return NotCarried(f"this host does not carry the tool {tool.name}")

    def begin(spec: BatchSpec, ended: Callable[[], None]) -> Batch:
        match adapter.way:
            case Each() as way:
                runner = ProgramRunner(programs, adapter, spec.mark, spec.limits.batch_output_bytes)
                return EachBatch(runner, spec, adapter, way, ended)
            case Many() as way:
                return ManyBatch(programs, spec, adapter, way, ended)

    return Carried(tool, programs.versions[tool.name], begin)


def _connector(containers: ContainerHost | None, claimed: Claimed) -> Carried | NotCarried:
    if containers is None:
        return NotCarried("this host runs no containers")
    try:
        manifest = read_manifest(claimed.connector)
    except Invalid as error:
        return NotCarried(f"{error.detail}: {error.fields}")
    if not _is_of(claimed.tool_id, manifest):
        return NotCarried(f"the manifest of {manifest.slug} came with a job of {claimed.tool_id}")
    refusal = containers.refusal(manifest)
    if refusal is not None:
        return NotCarried(refusal)
    adapter = manifest.adapter()
    way = adapter.way
    if not isinstance(way, Each):
        raise Defect("a connector has one container for each job")

    def begin(spec: BatchSpec, ended: Callable[[], None]) -> Batch:
        runner = ContainerRunner(containers, manifest, spec.wall_s, claimed.run_id)
        return EachBatch(runner, spec, adapter, way, ended)

    return Carried(manifest.tool(), manifest.version, begin)


def _is_of(tool_id: str, manifest: Manifest) -> bool:
    """A workspace's own connector has a mark behind its slug: others may have one of the same name."""
    return tool_id == manifest.slug or tool_id.startswith(f"{manifest.slug}_")
