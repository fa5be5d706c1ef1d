"""Derives the manifest from a scenario, through the same functions that the servers answer with.

What a run of the discovery pipeline (names, then ports of every name, then HTTP on every open port, then URLs
and checks on every web service) must find:

- every name of the zones but wildcards. Aliases are included, and a zone itself even without an address;
  names of one address are assets of their own;
- every open port of every asset;
- for every HTTP service its own answer to `GET /`, redirects not followed;
- every URL of the same origin at most `MAX_DEPTH` links away from `/`, whatever its status. A path in
  robots.txt or sitemap.xml is one link away, and a redirect counts as a link;
- the hash of the icon of a service whose `GET /` is HTML, where there is one;
- findings at planted pages; one per service behind a login that is its default (where a scan may try it);
  one per service whose `GET /` is HTML with status 200 and lacks any security header; one per TLS service
  with a bad certificate.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import dns.name

from runlane.lab.content import ICON_PATH, Answer, Origin, answer, references
from runlane.lab.manifest import Asset, Finding, FoundUrl, Manifest, Service, WebService
from runlane.lab.model import (
    APEX,
    SECURITY_HEADERS,
    WILDCARD,
    Certificate,
    Listener,
    Name,
    Scenario,
    Talk,
    Via,
    Web,
    Zone,
)
from runlane.lab.network import SIX_HOST, BaseNetwork
from runlane.lab.zonedata import ZoneData, build_zones, owner_name

MAX_DEPTH = 3
START = "start"
_MISSING_HEADERS = "missing-security-headers"
_DEFAULT_LOGIN = "default-login"
_BAD_CERTIFICATES = {Certificate.EXPIRED: "tls-expired", Certificate.SELF_SIGNED: "tls-self-signed"}


@dataclass(frozen=True, slots=True)
class _Place:
    """A listener under one of the names that lead to it."""

    host: str
    listener: Listener

    @property
    def origin(self) -> Origin:
        scheme = "https" if self.listener.certificate is not None else "http"
        return Origin(scheme, self.host, self.listener.port)


def derive_manifest(scenario: Scenario, base: BaseNetwork) -> Manifest:
    """Works out everything that a complete scan of `scenario` on `base` must find."""
    names = [(zone, name) for zone in scenario.zones for name in _names(zone)]
    zones = {
        zone.origin: data for zone, data in zip(scenario.zones, build_zones(scenario, base), strict=True)
    }
    places = [
        _Place(owner_name(name.label, zone.origin), listener)
        for zone, name in names
        for listener in _listeners(scenario, _host_of(zone, name))
    ]
    web = [(each.origin, each.listener.speaks) for each in places if isinstance(each.listener.speaks, Web)]
    return Manifest(
        scenario=scenario.name,
        target=scenario.target,
        base=base.cidr,
        networks=base.networks if _has_six(scenario) else (base.cidr,),
        ports=scenario.ports,
        assets=tuple(_asset(zone, name, zones[zone.origin], base) for zone, name in names),
        services=tuple(_service(each) for each in places),
        web=tuple(_web_service(origin, each) for origin, each in web),
        urls=tuple(url for origin, each in web for url in _crawl(origin, each)),
        findings=tuple(finding for each in places for finding in _findings(each)),
    )


def _has_six(scenario: Scenario) -> bool:
    return any(each.host == SIX_HOST for each in scenario.machines)


def _names(zone: Zone) -> list[Name]:
    """What exists in the zone: its names and, with or without an address, the zone itself."""
    bare = [] if any(each.label == APEX for each in zone.names) else [Name(APEX)]
    return bare + [each for each in zone.names if each.label != WILDCARD]


def _listeners(scenario: Scenario, host: int | None) -> tuple[Listener, ...]:
    return () if host is None else scenario.machine(host).listeners


def _host_of(zone: Zone, name: Name) -> int | None:
    """The machine that `name` leads to through its aliases; None for a zone without an address of its own."""
    if name.alias is None:
        return name.host
    return _host_of(zone, next(each for each in zone.names if each.label == name.alias))


def _asset(zone: Zone, name: Name, data: ZoneData, base: BaseNetwork) -> Asset:
    owner = owner_name(name.label, zone.origin)
    sets = data.nodes[dns.name.from_text(owner)]
    records = {kind.name: tuple(sorted(each.to_text() for each in rrset)) for kind, rrset in sets.items()}
    host = _host_of(zone, name)
    return Asset(owner, None if host is None else base.address(host), records)


def _service(place: _Place) -> Service:
    speaks = place.listener.speaks
    banner = speaks.greeting if isinstance(speaks, Talk) else None
    return Service(place.host, place.listener.port, "tcp", place.listener.certificate is not None, banner)


def _web_service(origin: Origin, web: Web) -> WebService:
    root = answer(web, origin, "/")
    title = root.page.title if root.page.is_html else None
    icon = answer(web, origin, ICON_PATH)
    has_icon = icon.status == 200 and not icon.page.is_html
    return WebService(
        url=origin.url("/"),
        status=root.status,
        title=title,
        server=root.headers["Server"],
        location=root.headers.get("Location"),
        favicon_sha256=hashlib.sha256(icon.body).hexdigest() if has_icon else None,
    )


def _crawl(origin: Origin, web: Web) -> Iterator[FoundUrl]:
    """Breadth-first from `/`, so that every URL has its least depth and the source that was first."""
    site = web.site_for(origin.host)
    seeds = [("/", 0, START)]
    seeds += [(path, 1, Via.ROBOTS.value) for path in site.disallow]
    seeds += [(path, 1, Via.SITEMAP.value) for path in site.sitemap]
    queue, seen = deque(seeds), set()
    while queue:
        path, depth, source = queue.popleft()
        if path in seen or depth > MAX_DEPTH:
            continue
        seen.add(path)
        reply = answer(web, origin, path)
        yield FoundUrl(origin.url(path), reply.status, depth, source)
        queue.extend((found, depth + 1, via.value) for found, via in _leads(origin, path, reply))


def _leads(origin: Origin, path: str, reply: Answer) -> list[tuple[str, Via]]:
    if not reply.page.is_html:
        return []
    return references(origin, path, reply.page)


def _findings(place: _Place) -> Iterator[Finding]:
    web, certificate, origin = place.listener.speaks, place.listener.certificate, place.origin
    if not isinstance(web, Web):
        return
    if certificate in _BAD_CERTIFICATES:
        yield Finding(_BAD_CERTIFICATES[certificate], origin.url("/"))
    site = web.site_for(place.host)
    if site.login is not None:
        yield Finding(_DEFAULT_LOGIN, origin.url("/"))
        return  # nothing behind it is seen without it
    for page in site.pages:
        if page.plant is not None:
            yield Finding(page.plant.value, origin.url(page.path))
    root = answer(web, origin, "/")
    if root.status == 200 and root.page.is_html and not SECURITY_HEADERS.keys() <= root.headers.keys():
        yield Finding(_MISSING_HEADERS, origin.url("/"))
