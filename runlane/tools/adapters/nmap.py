"""nmap: open ports of one address, from its XML.

The document is read as it comes, so that a scan that was cut off keeps what it had found. It is written by a
program that repeats what hosts said: declarations of entities are refused, sizes are bounded, and an element
that cannot be read costs itself only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat

from runlane.tools.adapters.adapter import (
    Adapter,
    Command,
    Conclusion,
    Each,
    Ended,
    Program,
    Raw,
    Reader,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import Flag, Options, Ports, Whole
from runlane.tools.addresses import parse_address
from runlane.tools.hosts import normalise_host
from runlane.tools.portlists import format_ports
from runlane.tools.records import MalformedRecord
from runlane.tools.workloads import NMAP_HOST_S, NMAP_RETRIES

MAX_DEPTH: Final = 32
"""Levels of elements; nmap's own documents have nine."""

_PROTOCOLS: Final = frozenset({"tcp", "udp"})


def scan(job: ToolJob, options: Options, _place: Workplace) -> tuple[Command, Reader]:
    """A connect scan of the judged address: it needs no privilege and is the same for every user."""
    if job.address is None:
        raise BadTarget("an address is needed")
    ports = format_ports(options.ports("ports"))
    argv = (
        *("nmap", "-n", "-Pn", "-sT", "--unprivileged", "--no-stylesheet", "-oX", "-"),
        *("--stats-every", "5s", f"-T{options.whole('timing', 4)}"),
        *("--max-retries", str(options.whole("retries", NMAP_RETRIES))),
        *("--host-timeout", f"{options.whole('host_s', NMAP_HOST_S)}s"),
        *(("--script", "banner", "--script-args", "banner.timeout=2s") if _wants_banners(options) else ()),
        *(("-sV", "--version-light") if _wants_services(options) else ()),
        *(("--max-rate", str(options.rate_per_s)) if options.rate_per_s else ()),
        *(("-6",) if ":" in job.address else ()),
        *("-p", ports),
        *("--", job.address),
    )
    return Command(argv), XmlReader(job.address, ports)


def _wants_banners(options: Options) -> bool:
    return options.flag("banners", default=True) and not options.rate_per_s


def _wants_services(options: Options) -> bool:
    # scripts and the detection of versions do not keep to --max-rate: under a rate only ports are looked at
    return options.flag("services", default=False) and not options.rate_per_s


@dataclass(slots=True)
class _Port:
    number: str
    protocol: str
    is_open: bool = False
    banner: str | None = None
    is_tls: bool | None = None


class XmlReader:
    """Reads the document of one scan."""

    def __init__(self, address: str, ports: str) -> None:
        self._address = address
        self._ports = ports
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse_entity
        self._depth = 0
        self._host: str | None = None
        self._port: _Port | None = None
        self._found: list[Raw] = []
        self._is_reachable = False
        self._faults: list[str] = []
        self._is_broken = False
        self._is_finished = False
        self._has_timed_out = False

    def feed(self, line: bytes) -> Sequence[Raw]:
        """Records of the ports whose elements end on this line.

        Raises:
            MalformedRecord: a port cannot be read, or the document cannot; what follows it is not read then.
        """
        if not self._is_broken:
            try:
                self._parser.Parse(line + b"\n")
            except expat.ExpatError as error:
                self._is_broken = True
                self._faults.append(f"the XML cannot be read: {expat.ErrorString(error.code)}")
        found, self._found = self._found, []
        if self._faults and not found:
            raise MalformedRecord(self._faults.pop(0))
        return found

    def conclude(self, ended: Ended) -> Conclusion:
        """A document without its end, or of a host that took too long, is a part of what there is."""
        if ended.code:
            return Conclusion(failure=f"exit code {ended.code}")
        if not self._is_finished:
            return Conclusion(failure="the document has no end")
        coverage = {"ports": self._ports, "protocol": "tcp", "address": self._address}
        faults = "; ".join(self._faults) or None
        return Conclusion(
            complete=not self._has_timed_out and faults is None,
            reachable=self._is_reachable,
            coverage=coverage,
            note="the host took too long" if self._has_timed_out else faults,
        )

    def _refuse_entity(self, *_: object) -> None:
        self._is_broken = True
        raise MalformedRecord("the XML declares entities")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._is_broken = True
            raise MalformedRecord("the XML is nested too deeply")
        match name:
            case "host":
                self._host = None
                self._has_timed_out |= attributes.get("timedout") == "true"
            case "address" if attributes.get("addrtype") in {"ipv4", "ipv6"}:
                self._host = attributes.get("addr")
            case "port":
                self._port = _Port(attributes.get("portid", ""), attributes.get("protocol", ""))
            case "finished":
                self._is_finished = attributes.get("exit", "success") == "success"
            case _ if self._port is not None:
                _describe(self._port, name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name != "port" or self._port is None:
            return
        port, self._port = self._port, None
        if not port.is_open:
            return
        try:
            self._found.append(self._record(port))
            self._is_reachable = True
        except MalformedRecord as error:
            self._faults.append(error.reason)

    def _record(self, port: _Port) -> Raw:
        if self._host is None or parse_address(self._host) is None:
            raise MalformedRecord("a port without an address")
        if normalise_host(self._host) != self._address:
            raise MalformedRecord("a port of another address than was asked for")
        is_number = port.number.isascii() and port.number.isdigit() and len(port.number) <= 5
        if not is_number or port.protocol not in _PROTOCOLS:
            raise MalformedRecord("a port that is no number, or of another protocol")
        return {
            "port": int(port.number),
            "protocol": port.protocol,
            "address": self._address,
            "banner": port.banner,
            "tls": port.is_tls,
        }


def _describe(port: _Port, element: str, attributes: Mapping[str, str]) -> None:
    match element:
        case "state":
            port.is_open = attributes.get("state") == "open"
        case "script" if attributes.get("id") == "banner":
            port.banner = attributes.get("output", "").strip() or None
        case "service" if attributes.get("method") == "probed":
            port.is_tls = attributes.get("tunnel") == "ssl"


ADAPTER: Final = Adapter(
    programs=(Program("nmap", ("nmap", "--version"), r"Nmap version (\S+)"),),
    schema={
        "ports": Ports(),
        "timing": Whole(1, 5),
        "retries": Whole(0, 10),
        "host_s": Whole(10, 3_600),
        "banners": Flag(),
        "services": Flag(),
    },
    way=Each((scan,)),
    silence_s=30,
)
