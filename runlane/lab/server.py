"""Opens a lab: its name server, every listener of its scenario, and the manifest of what is there."""

import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from runlane.lab.certificates import CertificateMaker
from runlane.lab.listeners import serve_listener
from runlane.lab.manifest import Manifest
from runlane.lab.model import Listener, Machine, Scenario
from runlane.lab.nameserver import NameServer
from runlane.lab.network import (
    DEFAULT_BASE,
    NAMESERVER_HOST,
    BaseNetwork,
    bind_failure,
    has_six,
    parse_base,
)
from runlane.lab.scenario import find_scenario
from runlane.lab.truth import derive_manifest
from runlane.lab.zonedata import build_zones

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab, got from `Lab.open`."""

    resolver: str
    """Where its name server answers, over UDP and TCP, as `address:port`."""
    manifest: Manifest
    hits: Counter[str]
    """HTTP requests so far by host, as the client named it, without port."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, base: str = DEFAULT_BASE, scenario: str = "full", slow_ms: int = 0
    ) -> AsyncIterator["Lab"]:
        """Opens a lab for the time of an `async with` block.

        Labs on different base networks run side by side. `slow_ms` is the latency of every TCP connection to
        a service (an HTTP connection carries one request); DNS is never slowed. Scanners wait about a second
        for a greeting: a slower lab hides its banners.

        Raises:
            Invalid: no such scenario, or a base network that is not loopback.
            Unavailable: an address or a port cannot be had; the text says what to do.
        """
        opener = _Opener(find_scenario(scenario), parse_base(base), slow_ms / 1000)
        async with AsyncExitStack() as stack:
            lab = await opener.open(stack)
            log.info("lab_opened", scenario=scenario, base=base, resolver=lab.resolver)
            yield lab
        log.info("lab_closed", base=base)


class _Opener:
    def __init__(self, scenario: Scenario, base: BaseNetwork, latency_s: float) -> None:
        self._scenario = scenario.placed(base.six_port if has_six() else None)
        self._base = base
        self._latency_s = latency_s
        self._manifest = derive_manifest(self._scenario, base)
        self._certificates = CertificateMaker(datetime.now(UTC))
        self._hits: Counter[str] = Counter()

    async def open(self, stack: AsyncExitStack) -> Lab:
        self._refuse_strangers()
        resolver = await self._open_nameserver(stack)
        for machine in self._scenario.machines:
            for listener in machine.listeners:
                await self._open_listener(stack, machine, listener)
        return Lab(resolver, self._manifest, self._hits)

    def _refuse_strangers(self) -> None:
        """Fails if a foreign program answers on a port of the lab: a scan would report its services as ours.

        A program that listens on all addresses answers on those of the lab as well, also where the lab itself
        has nothing. Binding tells without connecting to it.
        """
        for address in self._addresses():
            for port in self._scenario.ports:
                self._try_bind(address, port)

    def _try_bind(self, address: str, port: int) -> None:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
            # connections that are closed already do not count
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
            except OSError as error:
                raise bind_failure(error, f"{address}:{port}", self._addresses()) from error

    async def _open_nameserver(self, stack: AsyncExitStack) -> str:
        address = self._base.address(NAMESERVER_HOST)
        server = NameServer(build_zones(self._scenario, self._base))
        stack.push_async_callback(server.close)
        try:
            await server.open(address, self._scenario.ports)
        except OSError as error:
            raise bind_failure(error, address, self._addresses()) from error
        return f"{address}:{server.port}"

    async def _open_listener(self, stack: AsyncExitStack, machine: Machine, listener: Listener) -> None:
        address, tls = self._base.address(machine.host), None
        if listener.certificate is not None:
            names = sorted(each.name for each in self._manifest.assets if each.address == address)
            tls = self._certificates.server_context(listener.certificate, tuple(names))
        server = serve_listener(listener, self._hits, self._latency_s, tls)
        stack.push_async_callback(server.close)
        try:
            await server.open(address, listener.port)
        except OSError as error:
            raise bind_failure(error, f"{address}:{listener.port}", self._addresses()) from error

    def _addresses(self) -> list[str]:
        hosts = {NAMESERVER_HOST, *(each.host for each in self._scenario.machines)}
        return [self._base.address(each) for each in sorted(hosts)]
