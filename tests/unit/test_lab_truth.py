"""The manifest that is derived from a scenario, and the comparison with an inventory."""

from collections import Counter

import pytest

from runlane.errors import Invalid
from runlane.lab.manifest import Inventory, Manifest, compare
from runlane.lab.model import Scenario
from runlane.lab.network import parse_base
from runlane.lab.scenario import FULL, SMALL, find_scenario
from runlane.lab.truth import derive_manifest
from runlane.tools.urls import parse_url

FIRST_EPHEMERAL_PORT = 32768


def derive(scenario: Scenario, base: str = "127.7.0.0/24") -> Manifest:
    network = parse_base(base)
    return derive_manifest(scenario.placed(network.six_port), network)


@pytest.fixture(scope="module")
def full() -> Manifest:
    return derive(FULL)


@pytest.fixture(scope="module")
def small() -> Manifest:
    return derive(SMALL)


def test_full_scenario_is_as_large_as_documented(full: Manifest) -> None:
    assert len({each.address for each in full.assets}) >= 10
    assert sum(len(each.listeners) for each in FULL.machines) >= 16
    assert len({each.url for each in full.urls}) >= 36
    assert len(full.findings) >= 9


def test_full_scenario_plants_every_check(full: Manifest) -> None:
    assert {each.check for each in full.findings} == {
        "exposed-git",
        "exposed-env",
        "directory-listing",
        "missing-security-headers",
        "tls-expired",
        "tls-self-signed",
        "default-login",
    }


def test_small_scenario_has_two_services_and_little_else(small: Manifest) -> None:
    assert sorted(small.inventory().keys()) == [
        "asset lab.test",
        "asset mail.lab.test",
        "asset ns1.lab.test",
        "asset www.lab.test",
        "finding exposed-git http://www.lab.test:18080/.git/HEAD",
        "finding missing-security-headers http://www.lab.test:18080/",
        "service mail.lab.test:12525/tcp",
        "service www.lab.test:18080/tcp",
        "url http://www.lab.test:18080/",
        "url http://www.lab.test:18080/one",
        "url http://www.lab.test:18080/two",
        "web http://www.lab.test:18080/ 200",
    ]


@pytest.mark.parametrize("scenario", [FULL, SMALL], ids=lambda each: each.name)
def test_manifest_names_nothing_twice(scenario: Scenario) -> None:
    manifest = derive(scenario)
    counted = Counter(
        [each.name for each in manifest.assets]
        + [f"{each.host}:{each.port}" for each in manifest.services]
        + [f"web {each.url}" for each in manifest.web]
        + [each.url for each in manifest.urls]
        + [f"{each.check} {each.url}" for each in manifest.findings]
    )

    assert [key for key, count in counted.items() if count > 1] == []


def test_urls_are_in_their_one_spelling(full: Manifest) -> None:
    places = [*(each.url for each in full.urls), *(each.url for each in full.findings)]

    assert [each for each in places if str(parse_url(each)) != each] == []


def test_ports_are_fixed_and_outside_the_range_for_outgoing_connections(full: Manifest) -> None:
    assert all(1024 <= port < FIRST_EPHEMERAL_PORT for port in full.ports)
    assert full.port_list == ",".join(str(port) for port in sorted(full.ports))


def test_names_of_one_address_are_assets_with_services_of_their_own(full: Manifest) -> None:
    ports = {
        host: sorted(each.port for each in full.services if each.host == host)
        for host in ("app.lab.test", "shop.lab.test")
    }

    assert ports["app.lab.test"] == ports["shop.lab.test"] != []


def test_virtual_hosts_on_one_port_have_their_own_content(full: Manifest) -> None:
    titles = {each.url: each.title for each in full.web}

    assert titles["http://app.lab.test:18080/"] != titles["http://shop.lab.test:18080/"]


def test_alias_keeps_its_own_record_and_leads_to_the_address(full: Manifest) -> None:
    www = next(each for each in full.assets if each.name == "www.lab.test")

    assert www.records == {"CNAME": ("lab.test.",)}
    assert www.address == "127.7.0.10"


def test_zone_without_an_address_is_an_asset_without_services(small: Manifest) -> None:
    apex = next(each for each in small.assets if each.name == "lab.test")

    assert apex.address is None
    assert apex.records.keys() == {"SOA", "NS"}
    assert [each for each in small.services if each.host == apex.name] == []


def test_wildcard_is_no_asset(full: Manifest) -> None:
    assert not any("*" in each.name for each in full.assets)
    assert [each.name for each in full.assets if each.name.endswith(".dev.lab.test")] == []


def test_crawl_stops_three_links_away(full: Manifest) -> None:
    months = {each.url.partition("month=")[2]: each.depth for each in full.urls if "month=" in each.url}

    assert months == {"1": 1, "2": 2, "3": 3}


def test_crawl_stays_on_its_origin(full: Manifest) -> None:
    assert [each.url for each in full.urls if each.url.startswith("http://lab.test:18080/")] == [
        "http://lab.test:18080/"
    ]
    assert not any("elsewhere" in each.url for each in full.urls)


def test_redirect_counts_with_its_own_status(full: Manifest) -> None:
    web = next(each for each in full.web if each.url == "http://www.lab.test:18080/")

    assert (web.status, web.location) == (301, "https://www.lab.test:18443/")


@pytest.mark.parametrize("host", ["blog", "static", "status", "www"])
def test_decoys_have_no_finding(full: Manifest, host: str) -> None:
    assert [each for each in full.findings if f"//{host}.lab.test" in each.url] == []


def test_answer_that_is_no_html_needs_no_headers(full: Manifest) -> None:
    checks = {each.check for each in full.findings if "//api.lab.test" in each.url}

    assert checks == {"exposed-env"}


def test_base_network_changes_addresses_and_the_port_of_the_ipv6_machine() -> None:
    here, there = derive(FULL), derive(FULL, "127.9.3.0/24")
    moved = [key for key in here.inventory().keys() ^ there.inventory().keys() if "six.lab.test" not in key]

    assert moved == []
    assert {each.address for each in there.assets} & {each.address for each in here.assets} == {"::1"}
    assert set(here.ports) ^ set(there.ports) == {
        parse_base("127.7.0.0/24").six_port,
        parse_base("127.9.3.0/24").six_port,
    }


def test_ipv6_machine_is_an_asset_like_the_others_where_there_is_ipv6(full: Manifest) -> None:
    six = next(each for each in full.assets if each.name == "six.lab.test")
    without = derive_manifest(FULL.placed(None), parse_base("127.7.0.0/24"))

    assert (six.address, six.records) == ("::1", {"AAAA": ("::1",)})
    assert full.networks == ("127.7.0.0/24", "::1/128")
    assert without.networks == ("127.7.0.0/24",)
    assert not [each for each in without.assets if each.name == "six.lab.test"]


def test_service_behind_a_default_login_shows_nothing_but_the_finding(full: Manifest) -> None:
    everything = full.inventory().keys()

    assert sorted(key for key in everything if "admin.lab.test:18080" in key) == [
        "finding default-login http://admin.lab.test:18080/",
        "service admin.lab.test:18080/tcp",
        "url http://admin.lab.test:18080/",
        "web http://admin.lab.test:18080/ 401",
    ]


def test_icons_are_told_apart_by_their_hashes(full: Manifest) -> None:
    hashes = {each.url: each.favicon_sha256 for each in full.web if each.favicon_sha256 is not None}

    assert len(set(hashes.values())) >= 2
    assert "http://admin.lab.test:18080/" not in hashes


def test_complete_inventory_shows_no_difference(full: Manifest) -> None:
    assert not compare(full, full.inventory())


def test_compare_names_what_is_missing_and_what_is_too_much(small: Manifest) -> None:
    found = small.inventory()
    found.assets.remove("asset mail.lab.test")
    found.services.add("service www.lab.test:22/tcp")

    difference = compare(small, found)

    assert difference
    assert difference.missing == ["asset mail.lab.test"]
    assert difference.unexpected == ["service www.lab.test:22/tcp"]


def test_empty_inventory_misses_everything(small: Manifest) -> None:
    assert compare(small, Inventory()).missing == sorted(small.inventory().keys())


def test_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Invalid, match="full, small"):
        find_scenario("huge")
