"""The DNS records of a lab and how a query is answered from them. No sockets here.

Source: RFC 1034 §4.3.2, RFC 4592 for wildcards.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from runlane.lab.model import APEX, Name, Scenario, Zone
from runlane.lab.network import BaseNetwork

TTL_S = 60
_MAX_ALIASES = 8

RecordSets = Mapping[dns.rdatatype.RdataType, dns.rrset.RRset]


@dataclass(frozen=True, slots=True)
class ZoneData:
    """A zone ready to be served: one set of records per name and type."""

    origin: dns.name.Name
    transfer: bool
    nodes: Mapping[dns.name.Name, RecordSets]

    @property
    def soa(self) -> dns.rrset.RRset:
        """The start of authority, which every zone has."""
        return self.nodes[self.origin][dns.rdatatype.SOA]


def build_zones(scenario: Scenario, base: BaseNetwork) -> tuple[ZoneData, ...]:
    """Makes the records of every zone of `scenario` with addresses on `base`."""
    return tuple(_build_zone(zone, scenario, base) for zone in scenario.zones)


def owner_name(label: str, origin: str) -> str:
    """Full name, without final dot, of a label of the zone `origin`."""
    return origin if label == APEX else f"{label}.{origin}"


def find_zone(zones: tuple[ZoneData, ...], name: dns.name.Name) -> ZoneData | None:
    """The closest zone at or above `name`."""
    holding = [each for each in zones if name.is_subdomain(each.origin)]
    return max(holding, key=lambda each: len(each.origin), default=None)


def answer_query(zones: tuple[ZoneData, ...], query: dns.message.Message) -> dns.message.Message:
    """Answers one ordinary query with authority; aliases are followed through all zones of the lab.

    REFUSED outside the zones and for AXFR (see `transfer_zone`); otherwise, where there is nothing, NXDOMAIN
    or an empty answer, with the SOA.
    """
    response = dns.message.make_response(query)
    question = query.question[0]
    zone = find_zone(zones, question.name)
    if zone is None or question.rdtype in (dns.rdatatype.AXFR, dns.rdatatype.IXFR):
        response.set_rcode(dns.rcode.REFUSED)
        return response
    response.flags |= dns.flags.AA
    name = question.name
    for _ in range(_MAX_ALIASES):
        found = _lookup(zone, name)
        if found is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
            break
        if question.rdtype in found:
            response.answer.append(_owned_by(found[question.rdtype], name))
            return response
        if dns.rdatatype.CNAME not in found:
            break
        alias = found[dns.rdatatype.CNAME]
        response.answer.append(_owned_by(alias, name))
        name = alias[0].target
        zone = find_zone(zones, name) or zone
    response.authority.append(zone.soa)
    return response


def transfer_zone(zones: tuple[ZoneData, ...], query: dns.message.Message) -> dns.message.Message:
    """Answers an AXFR: the zone between two copies of its SOA, or REFUSED where the zone keeps its list.

    Source: RFC 5936. A lab zone fits in one message.
    """
    response = dns.message.make_response(query)
    zone = next((each for each in zones if each.origin == query.question[0].name), None)
    if zone is None or not zone.transfer:
        response.set_rcode(dns.rcode.REFUSED)
        return response
    response.flags |= dns.flags.AA
    rest = [each for sets in zone.nodes.values() for each in sets.values() if each is not zone.soa]
    response.answer = [zone.soa, *rest, zone.soa]
    return response


def _build_zone(zone: Zone, scenario: Scenario, base: BaseNetwork) -> ZoneData:
    origin = dns.name.from_text(zone.origin)
    serial = f"{zone.nameserver}. hostmaster.{zone.origin}. 2026010101 3600 600 86400 {TTL_S}"
    records: list[tuple[str, str, tuple[str, ...]]] = [
        (APEX, "SOA", (serial,)),
        (APEX, "NS", (f"{zone.nameserver}.",)),
    ]
    if zone.mail is not None:
        records.append((APEX, "MX", (f"10 {owner_name(zone.mail, zone.origin)}.",)))
    if zone.texts:
        records.append((APEX, "TXT", tuple(f'"{each}"' for each in zone.texts)))
    records += [_name_record(each, zone, base) for each in zone.names]
    for child in scenario.zones:
        if child.origin.endswith(f".{zone.origin}"):
            records.append((child.origin.removesuffix(f".{zone.origin}"), "NS", (f"{child.nameserver}.",)))
    nodes: dict[dns.name.Name, dict[dns.rdatatype.RdataType, dns.rrset.RRset]] = {}
    for label, kind, values in records:
        owner = dns.name.from_text(owner_name(label, zone.origin))
        rrset = dns.rrset.from_text(owner, TTL_S, "IN", kind, *values)
        nodes.setdefault(owner, {})[rrset.rdtype] = rrset
    return ZoneData(origin, zone.transfer, nodes)


def _name_record(name: Name, zone: Zone, base: BaseNetwork) -> tuple[str, str, tuple[str, ...]]:
    if name.alias is not None:
        return name.label, "CNAME", (f"{owner_name(name.alias, zone.origin)}.",)
    if name.host is None:
        raise ValueError(f"{name.label} in {zone.origin} has neither address nor alias")
    address = base.address(name.host)
    return name.label, "AAAA" if ":" in address else "A", (address,)


def _lookup(zone: ZoneData, name: dns.name.Name) -> RecordSets | None:
    """The records at `name` or of a covering wildcard; empty for a name between others; None otherwise."""
    if name in zone.nodes:
        return zone.nodes[name]
    encloser = name
    while not any(each.is_subdomain(encloser) for each in zone.nodes):
        encloser = encloser.parent()
    if encloser == name:
        return {}
    return zone.nodes.get(dns.name.Name((b"*", *encloser.labels)))


def _owned_by(records: dns.rrset.RRset, name: dns.name.Name) -> dns.rrset.RRset:
    """The same records under the name that was asked, which differs from the owner for a wildcard."""
    return dns.rrset.from_rdata_list(name, records.ttl, list(records))
