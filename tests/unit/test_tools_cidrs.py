"""CIDRs of internal networks: what may be one, and what of it may be contacted or be a target."""

import pytest

from runlane.errors import Invalid
from runlane.probes.egress import Egress
from runlane.probes.job import Options, Refused
from runlane.tools.addresses import is_allowed
from runlane.tools.cidrs import MAX_CIDRS, parse_cidrs
from runlane.tools.target_files import FileFormat, read_targets
from runlane.tools.targets import Target, TargetKind, parse_target

SITE = ["10.1.0.0/16", "fd00:1::/48"]


def test_cidrs_have_one_spelling_and_one_order() -> None:
    texts = ["FD00:1:0::/48", "192.168.7.0/24", "10.1.0.0/16"]

    assert parse_cidrs(texts) == ["10.1.0.0/16", "192.168.7.0/24", "fd00:1::/48"]


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([], "network.cidrs"),
        ([f"10.{number}.0.0/16" for number in range(MAX_CIDRS + 1)], "network.cidrs"),
        (["10.1.0.0/16", "10.1.2.0/24"], "network.overlap"),
        (["10.1.0.0/16", "10.1.0.0/16"], "network.overlap"),
        (["10.1.2.3/16"], "network.cidr"),
        (["10.1.0.0"], "network.cidr"),
        (["10.1.0.0/255.255.0.0"], "network.cidr"),
        (["site-a"], "network.cidr"),
        (["0.0.0.0/0"], "network.cidr"),
        (["::/0"], "network.cidr"),
        (["fe80::%eth0/64"], "network.cidr"),
        (["169.254.169.0/24"], "network.cidr"),
        (["224.0.0.0/8"], "network.cidr"),
        (["::ffff:10.1.0.0/112"], "network.cidr"),
    ],
)
def test_what_is_no_network_of_somebody_is_refused(texts: list[str], code: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_cidrs(texts)

    assert refused.value.code == code


def test_bound_host_contacts_nothing_but_its_network() -> None:
    assert is_allowed("10.1.2.3", SITE, is_bound=True)
    assert is_allowed("::ffff:10.1.2.3", SITE, is_bound=True)
    assert is_allowed("fd00:1::7", SITE, is_bound=True)
    assert not is_allowed("10.2.0.1", SITE, is_bound=True)
    assert not is_allowed("93.184.216.34", SITE, is_bound=True)
    assert not is_allowed("169.254.169.254", ["169.254.0.0/16"], is_bound=True)


async def test_probe_on_a_bound_host_refuses_a_public_address() -> None:
    bound = Egress(Options(60.0, tuple(SITE), is_bound=True))

    assert bound.permit("10.1.2.3") == "10.1.2.3"
    with pytest.raises(Refused):
        bound.permit("93.184.216.34")
    with pytest.raises(Refused):
        await bound.connect("93.184.216.34", 80)


def test_target_of_a_network_is_a_name_or_an_address_of_it() -> None:
    assert parse_target("10.1.2.3", SITE, is_bound=True) == Target(TargetKind.IP, "10.1.2.3")
    assert parse_target("10.1.2.0/24", SITE, is_bound=True) == Target(TargetKind.CIDR, "10.1.2.0/24")
    assert parse_target("db.corp.test", SITE, is_bound=True).kind is TargetKind.DOMAIN
    for text in ("93.184.216.34", "10.2.0.1", "10.2.0.0/24", "93.184.216.0/24"):
        with pytest.raises(Invalid) as refused:
            parse_target(text, SITE, is_bound=True)
        assert refused.value.code == "target.address_refused"


def test_lines_of_a_file_for_a_network_are_judged_by_it() -> None:
    read = read_targets("10.1.2.3\n93.184.216.34\n", FileFormat.CSV, SITE, is_bound=True)

    assert [target.value for target in read.targets] == ["10.1.2.3"]
    assert [(fault.line, fault.code) for fault in read.faults] == [(2, "target.address_refused")]
