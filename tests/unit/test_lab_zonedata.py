"""Answers of the lab's name server, without sockets."""

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from runlane.lab.model import APEX, WILDCARD, Name, Scenario, Zone
from runlane.lab.network import parse_base
from runlane.lab.scenario import FULL
from runlane.lab.zonedata import answer_query, build_zones, transfer_zone

ZONES = build_zones(FULL, parse_base("127.7.0.0/24"))


def ask(name: str, kind: str = "A") -> dns.message.Message:
    return answer_query(ZONES, dns.message.make_query(name, kind))


def values(response: dns.message.Message, kind: str) -> list[str]:
    wanted = dns.rdatatype.from_text(kind)
    return [each.to_text() for rrset in response.answer if rrset.rdtype == wanted for each in rrset]


def test_address_is_answered_with_authority() -> None:
    response = ask("app.lab.test")

    assert values(response, "A") == ["127.7.0.11"]
    assert response.flags & dns.flags.AA


def test_case_of_the_question_does_not_matter() -> None:
    assert values(ask("APP.Lab.Test"), "A") == ["127.7.0.11"]


def test_alias_is_followed_to_its_address() -> None:
    response = ask("shop.lab.test")

    assert values(response, "CNAME") == ["app.lab.test."]
    assert values(response, "A") == ["127.7.0.11"]


def test_alias_itself_can_be_asked_for() -> None:
    response = ask("shop.lab.test", "CNAME")

    assert values(response, "CNAME") == ["app.lab.test."]
    assert values(response, "A") == []


@pytest.mark.parametrize("kind", ["SOA", "NS", "MX", "TXT"])
def test_apex_carries_the_zone_records(kind: str) -> None:
    assert values(ask("lab.test", kind), kind) != []


def test_type_that_is_not_there_gets_an_empty_answer_with_the_soa() -> None:
    response = ask("app.lab.test", "AAAA")

    assert response.rcode() == dns.rcode.NOERROR
    assert response.answer == []
    assert [each.rdtype for each in response.authority] == [dns.rdatatype.SOA]


def test_name_that_is_not_there_does_not_exist() -> None:
    response = ask("nothing.lab.test")

    assert response.rcode() == dns.rcode.NXDOMAIN
    assert [each.rdtype for each in response.authority] == [dns.rdatatype.SOA]


def test_wildcard_answers_under_the_name_that_was_asked() -> None:
    response = ask("anything.at.all.dev.lab.test")

    assert values(response, "A") == ["127.7.0.19"]
    assert str(response.answer[0].name) == "anything.at.all.dev.lab.test."


def test_wildcard_does_not_reach_the_parent_zone() -> None:
    assert ask("dev2.lab.test").rcode() == dns.rcode.NXDOMAIN


def test_name_between_others_exists_without_records() -> None:
    zone = Zone("z.test", nameserver="a.b.z.test", names=(Name("a.b", host=2), Name(WILDCARD, host=3)))
    zones = build_zones(Scenario("s", (zone,), ()), parse_base("127.7.0.0/24"))

    response = answer_query(zones, dns.message.make_query("b.z.test", "A"))

    assert response.rcode() == dns.rcode.NOERROR
    assert response.answer == []


def test_alias_out_of_the_zones_ends_there() -> None:
    zone = Zone("z.test", nameserver="z.test", names=(Name(APEX, host=2), Name("gone", alias="nowhere")))
    zones = build_zones(Scenario("s", (zone,), ()), parse_base("127.7.0.0/24"))

    response = answer_query(zones, dns.message.make_query("gone.z.test", "A"))

    assert values(response, "CNAME") == ["nowhere.z.test."]
    assert response.rcode() == dns.rcode.NXDOMAIN


def test_alias_loop_ends() -> None:
    zone = Zone("z.test", nameserver="z.test", names=(Name("a", alias="b"), Name("b", alias="a")))
    zones = build_zones(Scenario("s", (zone,), ()), parse_base("127.7.0.0/24"))

    response = answer_query(zones, dns.message.make_query("a.z.test", "A"))

    assert values(response, "A") == []


@pytest.mark.parametrize("name", ["example.com", "test", "."])
def test_other_zones_are_refused(name: str) -> None:
    assert ask(name).rcode() == dns.rcode.REFUSED


def test_transfer_gives_every_name_between_two_soa_records() -> None:
    response = transfer_zone(ZONES, dns.message.make_query("lab.test", "AXFR"))
    kinds = [each.rdtype for each in response.answer]
    names = {str(each.name) for each in response.answer}

    assert kinds[0] == kinds[-1] == dns.rdatatype.SOA
    assert kinds.count(dns.rdatatype.SOA) == 2
    assert "vault-7c2.lab.test." in names


def test_transfer_shows_a_zone_below_only_as_delegated() -> None:
    response = transfer_zone(ZONES, dns.message.make_query("lab.test", "AXFR"))
    below = [each for each in response.answer if str(each.name).endswith("dev.lab.test.")]

    assert [each.rdtype for each in below] == [dns.rdatatype.NS]


@pytest.mark.parametrize("name", ["dev.lab.test", "app.lab.test", "example.com"])
def test_transfer_is_refused_where_it_is_not_open(name: str) -> None:
    response = transfer_zone(ZONES, dns.message.make_query(name, "AXFR"))

    assert response.rcode() == dns.rcode.REFUSED
    assert response.answer == []
