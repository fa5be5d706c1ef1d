"""Exclusions: one spelling, and what they cover."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import Invalid
from runlane.tools.addresses import Address
from runlane.tools.exclusions import ExclusionKind, parse_denied, parse_exclusion

LABELS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(lambda labels: ".".join([*labels, "test"]))
ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
PREFIXES = st.integers(0, 32)


def network_of(address: IPv4Address, prefix: int) -> IPv4Network:
    return IPv4Network((address, prefix), strict=False)


def wrapped(address: IPv4Address) -> list[Address]:
    """The IPv6 addresses that stand for an IPv4 one: mapped, NAT64, 6to4."""
    return [
        IPv6Address((0xFFFF << 32) | int(address)),
        IPv6Address((0x0064_FF9B << 96) | int(address)),
        IPv6Address((0x2002 << 112) | (int(address) << 80)),
    ]


@given(NAMES, LABELS)
def test_domain_covers_itself_and_all_below_it_and_nothing_beside_it(name: str, label: str) -> None:
    denied = parse_denied((parse_exclusion(ExclusionKind.DOMAIN, name).text,))

    assert denied.has_name(name)
    assert denied.has_name(f"{label}.{name}")
    assert not denied.has_name(f"{label}{name}")
    assert not denied.has_name(name.partition(".")[2])


@given(NAMES, LABELS)
def test_host_covers_that_name_only(name: str, label: str) -> None:
    denied = parse_denied((parse_exclusion(ExclusionKind.HOST, name).text,))

    assert denied.has_name(name)
    assert not denied.has_name(f"{label}.{name}")


@given(NAMES, st.sampled_from([ExclusionKind.DOMAIN, ExclusionKind.HOST]))
def test_case_and_trailing_dot_make_no_other_exclusion(name: str, kind: ExclusionKind) -> None:
    assert parse_exclusion(kind, f"{name.upper()}.") == parse_exclusion(kind, name)


def test_international_name_is_excluded_as_it_is_asked_for() -> None:
    for text in ("bücher.test", "BÜCHER.TEST.", "xn--bcher-kva.test", "*.bücher.test", ".bücher.test"):
        assert parse_exclusion(ExclusionKind.DOMAIN, text).value == "xn--bcher-kva.test"


@given(ADDRESSES, ADDRESSES, PREFIXES)
def test_network_covers_an_address_however_it_is_wrapped(
    address: IPv4Address, other: IPv4Address, prefix: int
) -> None:
    network = network_of(other, prefix)
    denied = parse_denied((parse_exclusion(ExclusionKind.NETWORK, str(network)).text,))

    forms: list[Address] = [address, *wrapped(address)]
    for form in forms:
        assert denied.has_address(form) == (address in network)
    assert all(denied.has_address(form) for form in wrapped(other))


@given(ADDRESSES, PREFIXES)
def test_network_of_wrapped_addresses_is_the_one_they_stand_for(address: IPv4Address, prefix: int) -> None:
    network = network_of(address, prefix)

    for form, offset in zip(wrapped(network.network_address), (96, 96, 16), strict=True):
        text = f"{form}/{prefix + offset}"
        assert parse_exclusion(ExclusionKind.NETWORK, text).value == str(network)


@given(ADDRESSES, PREFIXES, PREFIXES)
def test_network_target_is_covered_only_as_a_whole(address: IPv4Address, one: int, other: int) -> None:
    target, excluded = network_of(address, one), network_of(address, other)
    denied = parse_denied((str(excluded),))

    assert denied.has_place(str(target)) == target.subnet_of(excluded)


@given(st.lists(st.tuples(ADDRESSES, PREFIXES), max_size=5), ADDRESSES)
def test_overlapping_exclusions_cover_what_any_of_them_does(
    parts: list[tuple[IPv4Address, int]], address: IPv4Address
) -> None:
    networks = [network_of(*part) for part in parts]

    denied = parse_denied(tuple(str(network) for network in networks))

    assert denied.has_address(address) == any(address in network for network in networks)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ExclusionKind.DOMAIN, "192.0.2.1"),
        (ExclusionKind.DOMAIN, ""),
        (ExclusionKind.DOMAIN, "a b.test"),
        (ExclusionKind.HOST, "*.example.com"),
        (ExclusionKind.NETWORK, "192.0.2.1/24"),
        (ExclusionKind.NETWORK, "example.com"),
        (ExclusionKind.NETWORK, "fe80::1%eth0"),
        (ExclusionKind.PORT, "0"),
        (ExclusionKind.PORT, "65536"),
        (ExclusionKind.PORT, "٢٢"),
    ],
)
def test_what_is_not_of_its_kind_is_refused(kind: ExclusionKind, text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_exclusion(kind, text)

    assert refused.value.code == f"exclusion.{kind}"


def test_host_that_is_an_address_is_a_network_of_one() -> None:
    found = parse_exclusion(ExclusionKind.HOST, "::ffff:192.0.2.7")

    assert (found.kind, found.value) == (ExclusionKind.NETWORK, "192.0.2.7/32")
