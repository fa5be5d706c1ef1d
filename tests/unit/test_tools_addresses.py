"""Which addresses may be scanned, in every notation."""

import ipaddress

import pytest

from runlane.tools.addresses import is_allowed, is_inside_only, is_network_allowed

REFUSED = [
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "172.31.255.255",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "240.0.0.1",
    "::1",
    "::127.0.0.1",
    "fc00::1",
    "fec0::1",
    "2001:db8::1",
    "2001::1",
    "3fff::1",
    "64:ff9b:1::1",
    "100::1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fe80::1%eth0",
    "not an address",
    "",
    "127.1",
    "0177.0.0.1",
]
NEVER = [
    "169.254.169.254",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",  # noqa: S104
    "::",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
    "fe80::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
]


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_global_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address)


@pytest.mark.parametrize("address", REFUSED + NEVER)
def test_other_addresses_are_refused_without_an_allow_list(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize("address", NEVER)
def test_an_allow_list_of_everything_does_not_open_metadata_multicast_or_unspecified(address: str) -> None:
    assert not is_allowed(address, ["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize("address", ["127.7.0.3", "::ffff:127.7.0.3", "64:ff9b::7f07:3"])
def test_an_allowed_network_opens_its_addresses_in_every_notation(address: str) -> None:
    assert is_allowed(address, ["127.0.0.0/8"])
    assert not is_allowed(address, ["10.0.0.0/8", "fd00::/8"])


def test_an_ipv6_allow_list_does_not_open_an_address_that_leads_to_an_ipv4_one() -> None:
    assert not is_allowed("64:ff9b::7f00:1", ["::/0"])


def test_address_objects_are_judged_like_text() -> None:
    assert not is_allowed(ipaddress.ip_address("10.0.0.1"))
    assert is_allowed(ipaddress.ip_address("10.0.0.1"), ["10.0.0.0/24"])


def test_an_allow_list_that_is_no_cidr_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not appear"):
        is_allowed("10.0.0.1", ["ten/8"])


def test_a_network_is_allowed_only_whole() -> None:
    assert is_network_allowed(ipaddress.ip_network("10.0.0.0/24"), ["10.0.0.0/24"])
    assert not is_network_allowed(ipaddress.ip_network("10.0.0.0/23"), ["10.0.0.0/24"])
    assert not is_network_allowed(ipaddress.ip_network("168.63.129.0/24"))


@pytest.mark.parametrize(
    ("text", "is_inside"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd12::1", True),
        ("10.1.2.0/30", True),
        ("fd12::/126", True),
        ("8.8.8.8", False),
        ("8.8.8.0/30", False),
        ("192.168.1.1", False),
        ("192.168.1.0/30", False),
        ("169.254.169.254", False),
        ("inside.example.com", False),
    ],
)
def test_what_is_neither_global_nor_forbidden_is_inside(text: str, is_inside: bool) -> None:
    assert is_inside_only(text, ("10.0.0.0/8", "fd12::/16", "8.8.8.0/24", "169.254.0.0/16")) is is_inside


def test_nothing_is_inside_where_nothing_is_allowed() -> None:
    assert not is_inside_only("10.1.2.3", ())
