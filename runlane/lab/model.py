"""The words in which a lab network is described: zones, machines, listeners, sites and pages.

Pure data. Addresses are given by their last part alone, so that one description serves on any base network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from runlane.lab.network import SIX_HOST

APEX = "@"
WILDCARD = "*"

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "Permissions-Policy": "geolocation=()",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The complete set: a site that sends all of these must never be reported for missing headers."""


class Certificate(StrEnum):
    """Which certificate a TLS listener shows."""

    TRUSTED = "trusted"
    """Valid today, issued by the lab's own authority: nothing to report."""
    SELF_SIGNED = "self-signed"
    """Valid today, issuer equal to subject."""
    EXPIRED = "expired"
    """Issued by the lab's own authority, over for a month."""


class Via(StrEnum):
    """How a crawler comes to know a URL. The values are those of the crawl record's `source`."""

    LINK = "link"
    FORM = "form"
    SCRIPT = "script"
    ROBOTS = "robots"
    SITEMAP = "sitemap"


class Plant(StrEnum):
    """A finding that a page is planted to cause. The values are check ids."""

    EXPOSED_GIT = "exposed-git"
    EXPOSED_ENV = "exposed-env"
    DIRECTORY_LISTING = "directory-listing"


@dataclass(frozen=True, slots=True)
class Page:
    """One path of a site. `links`, `forms` and `scripts` are URL references as they stand in the HTML."""

    path: str
    title: str = ""
    text: str = ""
    """Prose of an HTML page, or the whole body when `content_type` is another one."""
    links: tuple[str, ...] = ()
    """For a directory listing its entries."""
    forms: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    location: str | None = None
    """Where a redirect goes; `{host}` stands for the name that was asked."""
    data: bytes | None = None
    """The whole body, when it is no text."""
    plant: Plant | None = None

    @property
    def is_html(self) -> bool:
        """Whether browsers render it, so that links are followed and header policies matter."""
        return self.content_type.startswith("text/html")


@dataclass(frozen=True, slots=True)
class Site:
    """What one virtual host serves. Paths that are not declared get 404, unless there is a `catch_all`."""

    server: str
    pages: tuple[Page, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    disallow: tuple[str, ...] = ()
    """Paths that robots.txt names; no robots.txt without any of them or a sitemap."""
    sitemap: tuple[str, ...] = ()
    """Paths that sitemap.xml lists."""
    catch_all: Page | None = None
    """Answers every other path, `path` aside: a soft 404 (status 200) or a redirect of the whole site."""
    icon: bytes | None = None
    """What `/favicon.ico` answers; None: there is none."""
    login: tuple[str, str] | None = None
    """Name and password without which every path answers 401."""
    generator: str | None = None
    """What the HTML names as its maker."""
    delay_ms: int = 0
    """Time before each answer, beyond the latency of the lab."""


@dataclass(frozen=True, slots=True)
class Web:
    """A web server. `sites` is keyed by full host name; other names and bare addresses get `default`."""

    default: Site
    sites: Mapping[str, Site] = field(default_factory=dict)

    def site_for(self, host: str) -> Site:
        """The site that answers for `host` (a name or an address, without port)."""
        return self.sites.get(host.lower(), self.default)


@dataclass(frozen=True, slots=True)
class Talk:
    """A line protocol reduced to its first words. Both texts are without line end."""

    greeting: str | None
    """Sent on connect; None for a service that waits for the client to speak."""
    farewell: str | None
    """Sent after the client's first line, before the connection closes."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A TCP port of a machine."""

    port: int
    speaks: Web | Talk
    certificate: Certificate | None = None
    """None for plain text."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One address and everything that listens there."""

    host: int
    """Last part of the address."""
    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """An owner name in a zone: either an address (`host`) or another name of the zone (`alias`)."""

    label: str
    """Relative to the zone; `APEX` is the zone itself, `WILDCARD` answers for names that are not there."""
    host: int | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Zone:
    """A DNS zone. SOA and NS are made from `nameserver`; a zone below another one is delegated by it."""

    origin: str
    """Without final dot."""
    nameserver: str
    """Full name of the server, without final dot."""
    names: tuple[Name, ...]
    mail: str | None = None
    """Label of the MX target."""
    texts: tuple[str, ...] = ()
    """TXT records of the apex."""
    transfer: bool = False
    """Whether AXFR is answered; a refused one leaves a scanner with its word list."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole lab. The first zone is the scan target."""

    name: str
    zones: tuple[Zone, ...]
    machines: tuple[Machine, ...]

    @property
    def target(self) -> str:
        """The domain that a scan of this lab starts from."""
        return self.zones[0].origin

    @property
    def ports(self) -> tuple[int, ...]:
        """Every port that is open on some machine, ascending: what a port scan must try everywhere."""
        return tuple(sorted({each.port for machine in self.machines for each in machine.listeners}))

    def placed(self, six_port: int | None) -> "Scenario":
        """The scenario with the port of its IPv6 machine (None: without that machine and its names)."""
        if six_port is not None:
            machines = tuple(_at_port(each, six_port) for each in self.machines)
            return replace(self, machines=machines)
        machines = tuple(each for each in self.machines if each.host != SIX_HOST)
        zones = tuple(
            replace(zone, names=tuple(each for each in zone.names if each.host != SIX_HOST))
            for zone in self.zones
        )
        return replace(self, machines=machines, zones=zones)

    def machine(self, host: int) -> Machine:
        """The machine at `host`; one without listeners if only the DNS knows it."""
        return next((each for each in self.machines if each.host == host), Machine(host, ()))


def _at_port(machine: Machine, port: int) -> Machine:
    if machine.host != SIX_HOST:
        return machine
    return replace(machine, listeners=tuple(replace(each, port=port) for each in machine.listeners))
