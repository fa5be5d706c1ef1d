"""The truth about a lab as typed data, and how an inventory is compared with it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Asset:
    """A name that a scan of the lab must find."""

    name: str
    address: str | None
    """Where it leads in the end, through any alias; None for a zone that has no address itself."""
    records: Mapping[str, tuple[str, ...]]
    """The records at the name itself, by type, in zone file notation."""


@dataclass(frozen=True, slots=True)
class Service:
    """An open port of an asset. Assets that share a machine each have its ports."""

    host: str
    port: int
    protocol: str
    tls: bool
    banner: str | None
    """What the service says unasked."""


@dataclass(frozen=True, slots=True)
class WebService:
    """A service that speaks HTTP, and its own answer to `GET /`: a redirect is not followed."""

    url: str
    status: int
    title: str | None
    server: str
    location: str | None
    favicon_sha256: str | None
    """Of its icon, in hex."""


@dataclass(frozen=True, slots=True)
class FoundUrl:
    """A URL within reach of a crawl."""

    url: str
    status: int
    depth: int
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a scan must report, at the place where it must report it."""

    check: str
    url: str


@dataclass(slots=True)
class Inventory:
    """What a scan found, as sets of text keys; build them with the functions below."""

    assets: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    web: set[str] = field(default_factory=set)
    urls: set[str] = field(default_factory=set)
    findings: set[str] = field(default_factory=set)
    pictures: set[str] = field(default_factory=set)

    def keys(self) -> set[str]:
        """Every key of every kind."""
        return self.assets | self.services | self.web | self.urls | self.findings | self.pictures


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a complete scan of `target` must find, and nothing else."""

    scenario: str
    target: str
    base: str
    networks: tuple[str, ...]
    """What must be allowed to be scanned."""
    ports: tuple[int, ...]
    """What the port scan must try on every asset, ascending."""
    assets: tuple[Asset, ...]
    services: tuple[Service, ...]
    web: tuple[WebService, ...]
    urls: tuple[FoundUrl, ...]
    findings: tuple[Finding, ...]
    pictures: tuple[str, ...] = ()
    """URLs of which a scan must take a picture; none where there is no browser."""

    def with_pictures(self) -> "Manifest":
        """What a scan must find that also takes a picture of every web service."""
        return replace(self, pictures=tuple(each.url for each in self.web))

    @property
    def port_list(self) -> str:
        """`ports` in the notation of the port scanner's option, such as `8080,8443`."""
        return ",".join(map(str, self.ports))

    def inventory(self) -> Inventory:
        """The truth in the form that it is compared in."""
        return Inventory(
            assets={asset_key(each.name) for each in self.assets},
            services={service_key(each.host, each.port, each.protocol) for each in self.services},
            web={web_key(each.url, each.status) for each in self.web},
            urls={url_key(each.url) for each in self.urls},
            findings={finding_key(each.check, each.url) for each in self.findings},
            pictures={picture_key(url) for url in self.pictures},
        )

    def to_json(self) -> dict[str, object]:
        """Plain data for `json.dumps`; field names are those of the dataclasses."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """How an inventory departs from the truth; both lists are sorted."""

    missing: list[str]
    unexpected: list[str]

    def __bool__(self) -> bool:
        """True if there is any difference."""
        return bool(self.missing or self.unexpected)


def compare(manifest: Manifest, inventory: Inventory) -> Difference:
    """Compares what was found with the truth."""
    truth, found = manifest.inventory().keys(), inventory.keys()
    return Difference(missing=sorted(truth - found), unexpected=sorted(found - truth))


def asset_key(name: str) -> str:
    """`asset app.lab.test`."""
    return f"asset {name}"


def service_key(host: str, port: int, protocol: str) -> str:
    """`service app.lab.test:8080/tcp`."""
    return f"service {host}:{port}/{protocol}"


def web_key(url: str, status: int) -> str:
    """`web http://app.lab.test:8080/ 200`."""
    return f"web {url} {status}"


def url_key(url: str) -> str:
    """`url http://app.lab.test:8080/login`."""
    return f"url {url}"


def finding_key(check: str, url: str) -> str:
    """`finding exposed-git http://app.lab.test:8080/.git/HEAD`."""
    return f"finding {check} {url}"


def picture_key(url: str) -> str:
    """`picture http://app.lab.test:8080/`."""
    return f"picture {url}"
