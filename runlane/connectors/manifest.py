"""A manifest that was read, and what it makes: a tool for the server, an adapter for the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runlane.connectors.arguments import Known, fill
from runlane.connectors.limits import Limits
from runlane.connectors.options import Option
from runlane.connectors.records import RecordReader, job_line
from runlane.tools import Category, FansOut, Shape, Tool, Toolset
from runlane.tools.adapters.adapter import Adapter, Command, Each, Reader, ToolJob, Workplace
from runlane.tools.adapters.nmap import XmlReader
from runlane.tools.adapters.options import Options, Ports, Schema

_PORTS: Final = Option(Ports())


class Network(StrEnum):
    """What a container is connected to."""

    NONE = "none"
    TARGETS = "targets"  # the network that the host's operator has made for it; never the host's own


class Input(StrEnum):
    """How a container is told of its job."""

    ARGV = "argv"
    STDIN = "stdin"  # one line of JSON


class Output(StrEnum):
    """How standard output is read."""

    RECORDS = "records"
    NMAP_XML = "nmap-xml"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One connector. Made by `read_manifest` only: every field is inside its bounds."""

    slug: str
    """Id of the tool that steps name."""
    name: str
    version: str
    category: Category
    fans_out: FansOut
    image: str
    """Repository of the image, without tag: `digest` says which one runs."""
    digest: str
    """`sha256:…`: the image's own id, or its digest in the repository. No other image runs."""
    entrypoint: tuple[str, ...]
    """Program in the image, by its whole path, and arguments that never change."""
    argv: tuple[str, ...]
    ipv6: tuple[str, ...]
    """Arguments that `{ipv6}` stands for if the address is one."""
    input: Input
    output: Output
    network: Network
    options: Mapping[str, Option]
    limits: Limits

    def tool(self) -> Tool:
        """As the server dispatches it and the host runs it."""
        return Tool(
            name=self.slug,
            category=self.category,
            fans_out=self.fans_out,
            wall_s=self.limits.wall_s,
            parallelism=self.limits.parallelism,
            toolset=Toolset.CONTAINER,
            shape=Shape.EACH,
            max_batch=self.limits.max_batch,
            large_max_batch=self.limits.max_batch,
            version=self.version,
        )

    def schema(self) -> Schema:
        """Options that a step's `config` may have, beyond those that every tool takes."""
        return {name: option.kind for name, option in self.options.items()}

    def adapter(self) -> Adapter:
        """As a host runs it: one container for each job, whose argument list and output are read here."""
        return Adapter(
            programs=(),
            schema=self.schema(),
            way=Each((self._stage,)),
            silence_s=self.limits.silence_s,
            needs_address=self.network is Network.TARGETS,
            address_space_bytes=None,
        )

    def as_json(self) -> dict[str, object]:
        """The form that is stored and sent; reading it gives this manifest again."""
        return {
            "slug": self.slug,
            "name": self.name,
            "version": self.version,
            "category": self.category.value,
            "fans_out": self.fans_out.value,
            "image": self.image,
            "digest": self.digest,
            "entrypoint": list(self.entrypoint),
            "argv": list(self.argv),
            "ipv6": list(self.ipv6),
            "input": self.input.value,
            "output": self.output.value,
            "network": self.network.value,
            "options": {name: option.as_json() for name, option in self.options.items()},
            "limits": self.limits.as_json(),
        }

    def known(self) -> Known:
        """What places of the argument list may name."""
        return Known(self.fans_out, self.network is Network.TARGETS, self.options, self.ipv6)

    def _stage(self, job: ToolJob, options: Options, _place: Workplace) -> tuple[Command, Reader]:
        argv = (*self.entrypoint, *fill(self.argv, job, options, self.known()))
        values = {name: option.value(name, options) for name, option in self.options.items()}
        stdin = job_line(job, values, options) if self.input is Input.STDIN else b""
        if self.output is Output.RECORDS:
            return Command(argv, stdin), RecordReader(job.job_id)
        ports = self.options.get("ports", _PORTS).value("ports", options)
        return Command(argv, stdin), XmlReader(job.address or job.host, str(ports))


@dataclass(frozen=True, slots=True)
class Connector:
    """A manifest as a workspace has it: steps name its slug, jobs carry the id of its tool."""

    tool_id: str
    manifest: Manifest
