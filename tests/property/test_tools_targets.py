"""Every text is refused or read to one spelling; no notation evades the verdict on an address."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import Invalid
from runlane.tools.addresses import METADATA, is_allowed
from runlane.tools.targets import MAX_NETWORK_ADDRESSES, TargetKind, parse_target


@given(
    st.text()
    | st.ip_addresses().map(str)
    | st.from_regex(r"[a-zA-Z0-9.-]{1,30}(/[0-9]{1,3})?", fullmatch=True)
)
def test_a_target_is_refused_or_read_to_a_spelling_that_reads_to_itself(text: str) -> None:
    try:
        target = parse_target(text)
    except Invalid:
        return
    assert parse_target(target.value) == target
    assert target.value.isascii()
    assert not target.value.startswith("-")
    if target.kind is TargetKind.IP:
        assert is_allowed(target.value)
    if target.kind is TargetKind.CIDR:
        assert ip_network(target.value).num_addresses <= MAX_NETWORK_ADDRESSES


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_and_the_ipv6_forms_that_lead_to_it_have_one_verdict(address: IPv4Address) -> None:
    number = int(address)
    forms = [0xFFFF << 32 | number, 0x64_FF9B << 96 | number, 0x2002 << 112 | number << 80]

    for allow in ([], ["127.0.0.0/8"], ["0.0.0.0/0"]):
        assert {is_allowed(IPv6Address(form), allow) for form in forms} == {is_allowed(address, allow)}


@given(st.sampled_from(METADATA).flatmap(lambda network: st.ip_addresses(network=network)))
def test_metadata_is_never_allowed(address: IPv4Address | IPv6Address) -> None:
    assert not is_allowed(address, ["0.0.0.0/0", "::/0"])
