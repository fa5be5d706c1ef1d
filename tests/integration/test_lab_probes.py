"""The probe programs against the lab: what they find, stage after stage, is the manifest and nothing else."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from runlane.lab.manifest import (
    Inventory,
    Manifest,
    asset_key,
    compare,
    finding_key,
    service_key,
    url_key,
    web_key,
)
from runlane.lab.server import Lab
from runlane.tools import TOOLS, parse_records
from runlane.tools.http_probe import HttpRecord
from runlane.tools.ports_scanner import PortRecord
from runlane.tools.subdomains import SubdomainRecord
from runlane.tools.url_discovery import UrlRecord
from runlane.tools.vulnerabilities import FindingRecord

Json = Mapping[str, object]
R = TypeVar("R")
NETWORK = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"


@dataclass
class Result:
    """What a probe said about one job."""

    records: list[Json] = field(default_factory=list)
    done: dict[str, object] = field(default_factory=dict)


@dataclass
class Scan:
    """What the whole chain of probes found in one lab."""

    manifest: Manifest
    names: list[SubdomainRecord]
    ports: list[tuple[str, PortRecord]]
    web: list[HttpRecord]
    urls: list[UrlRecord]
    findings: list[FindingRecord]
    done: dict[str, list[Json]]

    def inventory(self) -> Inventory:
        return Inventory(
            assets={asset_key(each.name) for each in self.names},
            services={service_key(host, each.port, each.protocol) for host, each in self.ports},
            web={web_key(each.url, each.status) for each in self.web},
            urls={url_key(each.url) for each in self.urls},
            findings={finding_key(each.check, each.url) for each in self.findings},
        )


async def run_probe(tool: str, targets: Sequence[Json], options: Json) -> list[Result]:
    """Runs a probe program with one job for each target; results in the order of the targets."""
    lines = [
        json.dumps({"job": str(number), "target": target, "options": options})
        for number, target in enumerate(targets)
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"runlane.probes.{tool}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    output, errors = await process.communicate("\n".join(lines).encode() + b"\n")
    assert process.returncode == 0, errors.decode()
    results = [Result() for _ in targets]
    for message in map(json.loads, output.splitlines()):
        if "record" in message:
            results[int(message["job"])].records.append(message["record"])
        elif "done" in message:
            results[int(message["job"])].done = message["done"]
    return results


def parsed(tool: str, result: Result, kind: type[R]) -> list[R]:
    reading = parse_records(TOOLS[tool].category, result.records)
    assert reading.quarantined == 0, reading.sample
    return [each for each in reading.records if isinstance(each, kind)]


class Chain:
    """Runs the stages of the discovery pipeline, each fed with what the one before found."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._options = {
            "resolver": lab.resolver,
            "allow": ["127.0.0.0/8", "::1/128"],
            "ports": lab.manifest.port_list,
            "default_logins": True,
        }
        self._done: dict[str, list[Json]] = {}

    async def scan(self) -> Scan:
        manifest = self._lab.manifest
        domain = {"host": manifest.target, "kind": "domain"}
        names = [each for _, each in await self._stage("dnsprobe", [domain], SubdomainRecord)]
        hosts = [
            {"host": each.name, "kind": "host", "address": next(iter(each.addresses), None)} for each in names
        ]
        found = await self._stage("portprobe", hosts, PortRecord)
        ports = [(str(target["host"]), each) for target, each in found]
        places = [
            {"host": host, "kind": "host", "address": each.address, "port": each.port, "tls": each.tls}
            for host, each in ports
        ]
        web = await self._stage("webprobe", places, HttpRecord)
        sites = [{**target, "url": each.url} for target, each in web]
        urls = await self._stage("webcrawl", sites, UrlRecord)
        findings = await self._stage("webcheck", sites, FindingRecord)
        return Scan(
            manifest,
            names,
            ports,
            [each for _, each in web],
            [each for _, each in urls],
            [each for _, each in findings],
            self._done,
        )

    async def _stage(self, tool: str, targets: Sequence[Json], kind: type[R]) -> list[tuple[Json, R]]:
        results = await run_probe(tool, targets, self._options)
        self._done[tool] = [each.done for each in results]
        return [
            (target, record)
            for target, result in zip(targets, results, strict=True)
            for record in parsed(tool, result, kind)
        ]


@pytest.fixture(scope="module")
async def full() -> AsyncIterator[Scan]:
    async with Lab.open(f"{NETWORK}.0/25") as lab:
        yield await Chain(lab).scan()


@pytest.fixture(scope="module")
async def small() -> AsyncIterator[Scan]:
    async with Lab.open(f"{NETWORK}.128/26", "small") as lab:
        yield await Chain(lab).scan()


def test_chain_finds_the_full_lab_and_nothing_else(full: Scan) -> None:
    difference = compare(full.manifest, full.inventory())

    assert (difference.missing, difference.unexpected) == ([], [])


def test_chain_finds_the_small_lab_and_nothing_else(small: Scan) -> None:
    difference = compare(small.manifest, small.inventory())

    assert (difference.missing, difference.unexpected) == ([], [])


@pytest.mark.parametrize("tool", ["dnsprobe", "portprobe", "webprobe", "webcrawl", "webcheck"])
def test_every_job_completes(full: Scan, tool: str) -> None:
    endings = {(each["outcome"], each["error"], each["complete"]) for each in full.done[tool]}

    assert endings == {("completed", None, True)}


def test_names_have_the_records_of_the_zone(full: Scan) -> None:
    found = {each.name: dict(each.records) for each in full.names}

    assert found == {each.name: dict(each.records) for each in full.manifest.assets}


def test_open_ports_tell_address_banner_and_tls(full: Scan) -> None:
    addresses = {each.name: each.address for each in full.manifest.assets}
    found = {(host, each.port): (each.address, each.banner, bool(each.tls)) for host, each in full.ports}

    assert found == {
        (each.host, each.port): (addresses[each.host], each.banner, each.tls)
        for each in full.manifest.services
    }


def test_web_services_tell_title_server_and_icon(full: Scan) -> None:
    found = {
        each.url: (each.title, each.server, each.favicon_sha256.hex() if each.favicon_sha256 else None)
        for each in full.web
    }

    assert found == {each.url: (each.title, each.server, each.favicon_sha256) for each in full.manifest.web}


def test_urls_tell_status_depth_and_source(full: Scan) -> None:
    found = {each.url: (each.status, each.depth, each.source) for each in full.urls}

    assert found == {each.url: (each.status, each.depth, each.source) for each in full.manifest.urls}


async def test_wildcard_zone_does_not_yield_the_word_list() -> None:
    async with Lab.open(f"{NETWORK}.192/26") as lab:
        options = {"resolver": lab.resolver, "allow": ["127.0.0.0/8"]}
        [result] = await run_probe("dnsprobe", [{"host": "dev.lab.test", "kind": "domain"}], options)

    assert [each.name for each in parsed("dnsprobe", result, SubdomainRecord)] == ["dev.lab.test"]


async def test_probes_leave_a_lab_alone_that_they_may_not_reach() -> None:
    async with Lab.open(f"{NETWORK}.192/26", "small") as lab:
        target = {"host": "www.lab.test", "kind": "host", "port": 18080, "url": "http://www.lab.test:18080/"}
        options = {"resolver": lab.resolver, "allow": []}

        results = [await run_probe(tool, [target], options) for tool in ("webprobe", "webcrawl", "webcheck")]

        assert lab.hits.total() == 0
        assert [each.records for [each] in results] == [[], [], []]
