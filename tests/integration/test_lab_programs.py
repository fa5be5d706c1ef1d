"""The foreign programs that are on this machine, run for real against a lab network."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio

from runlane.jobs import Outcome
from runlane.lab.server import Lab
from runlane.scan.batch import BatchSpec
from runlane.scan.children import Launcher
from runlane.scan.config import ScanLimits
from runlane.scan.confine import marked_processes
from runlane.scan.each import EachBatch
from runlane.scan.programs import ProgramHost, ProgramRunner
from runlane.scan.toolbox import Toolbox, find_tools
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools import TOOLS, Category, parse_records
from runlane.tools.adapters import ADAPTERS
from runlane.tools.adapters.adapter import Each
from runlane.tools.ports_scanner import PortRecord
from runlane.tools.screenshot import ScreenshotRecord
from tests.unit.probe_servers import Reply, page, serve_http
from tests.waiting import until

NETWORK = f"127.{192 + os.getpid() % 60}.{os.getpid() // 60 % 256}"
BASE = f"{NETWORK}.0/24"
WAIT_S = 120.0


@pytest_asyncio.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as launcher:
        yield launcher


@pytest_asyncio.fixture(scope="module")
async def toolbox(launcher: Launcher) -> Toolbox:
    return await find_tools({"probe": 1, "nmap": 1, "browser": 1}, launcher)


@pytest_asyncio.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab.open(BASE) as lab:
        yield lab


@pytest.fixture
def nmap(toolbox: Toolbox, launcher: Launcher, tmp_path: Path) -> ProgramHost:
    return host_with("nmap", toolbox, launcher, tmp_path)


@pytest.fixture
def browser(toolbox: Toolbox, launcher: Launcher, tmp_path: Path) -> ProgramHost:
    return host_with("browser", toolbox, launcher, tmp_path)


def host_with(toolset: str, toolbox: Toolbox, launcher: Launcher, folder: Path) -> ProgramHost:
    if toolset not in toolbox.slots:
        pytest.skip(f"the programs of the tool set {toolset} are not on PATH")
    return ProgramHost(launcher, folder / "work", toolbox.paths, toolbox.versions)


def batch_of(
    host: ProgramHost, tool: str, targets: Mapping[str, Mapping[str, object]], **options: object
) -> EachBatch:
    adapter = ADAPTERS[tool]
    assert isinstance(adapter.way, Each)
    jobs = tuple(ClaimedJob(job_id, 1, target) for job_id, target in targets.items())
    spec = BatchSpec(
        TOOLS[tool], jobs, {"allow": [BASE, "::1/128"], **options}, f"lab/{uuid4()}", ScanLimits()
    )
    runner = ProgramRunner(host, adapter, spec.mark, spec.limits.batch_output_bytes)
    return EachBatch(runner, spec, adapter, adapter.way, lambda: None)


async def run(batch: EachBatch) -> dict[str, Member]:
    async with asyncio.timeout(WAIT_S):
        await batch.run()
    return {member.job_id: member for member in batch.take_finished()}


def ports_of(member: Member) -> dict[int, PortRecord]:
    parsed = parse_records(Category.PORTS_SCANNER, [orjson.loads(text) for text in member.records])
    assert parsed.quarantined == 0
    return {record.port: record for record in parsed.records if isinstance(record, PortRecord)}


def pictures_of(member: Member) -> list[ScreenshotRecord]:
    parsed = parse_records(Category.SCREENSHOT, [orjson.loads(text) for text in member.records])
    assert parsed.quarantined == 0
    return [record for record in parsed.records if isinstance(record, ScreenshotRecord)]


async def test_nmap_finds_exactly_the_open_ports_and_their_banners(nmap: ProgramHost, lab: Lab) -> None:
    names = ("app.lab.test", "files.lab.test", "mail.lab.test", *six_names(lab))
    targets = {name: {"host": name} for name in names}

    members = await run(batch_of(nmap, "nmap", targets, resolver=lab.resolver, ports=lab.manifest.port_list))

    for name in names:
        truth = {service.port: service.banner for service in lab.manifest.services if service.host == name}
        assert {port: record.banner for port, record in ports_of(members[name]).items()} == truth
        assert (members[name].outcome, members[name].complete) == (Outcome.COMPLETED, True)
        assert members[name].reachable
    assert re.fullmatch(r"\d+\.\d+\S*", nmap.versions["nmap"])


def six_names(lab: Lab) -> list[str]:
    """Names at IPv6 addresses; none where the system has no IPv6."""
    return [asset.name for asset in lab.manifest.assets if asset.address == "::1"]


async def test_nmap_refuses_an_address_that_may_not_be_contacted(nmap: ProgramHost) -> None:
    members = await run(
        batch_of(
            nmap, "nmap", {"meta": {"host": "169.254.169.254"}, "near": {"host": "x", "address": "10.0.0.1"}}
        )
    )

    assert {member.outcome for member in members.values()} == {Outcome.FATAL}
    assert all("may not be contacted" in (member.error or "") for member in members.values())
    assert all(member.argv == () for member in members.values())


async def test_nmap_over_its_limit_is_timed_out(nmap: ProgramHost) -> None:
    targets = {"all": {"host": f"{NETWORK}.11"}}

    members = await run(batch_of(nmap, "nmap", targets, ports="1-65535", timing=1, timeout_s=1))

    assert members["all"].outcome is Outcome.TIMED_OUT


async def test_cancelled_nmap_dies(nmap: ProgramHost) -> None:
    batch = batch_of(nmap, "nmap", {"all": {"host": f"{NETWORK}.11"}}, ports="1-65535", timing=1)
    running = asyncio.create_task(batch.run())
    mark = batch._spec.mark
    await until(lambda: any(found.startswith(mark) for _, found in marked_processes()))

    assert batch.cancel("all", 1)

    async with asyncio.timeout(WAIT_S):
        await running
    assert not any(found.startswith(mark) for _, found in marked_processes())


async def test_browser_takes_a_picture_of_each_service(browser: ProgramHost, lab: Lab) -> None:
    web = {each.url: each for each in lab.manifest.web if "lab.test:18443" in each.url or "app." in each.url}
    targets = {url: {"host": url.split("/")[2].split(":")[0], "url": url} for url in web}

    members = await run(batch_of(browser, "screenshot", targets, resolver=lab.resolver))

    for url, member in members.items():
        (picture,) = pictures_of(member)
        assert (picture.url, picture.width, picture.height) == (url, 1280, 800)
        assert (member.outcome, member.complete, member.error) == (Outcome.COMPLETED, True, None)
    assert len(targets) >= 3
    assert list(browser.folder.iterdir()) == []


async def test_browser_reaches_an_ipv6_service_by_name_and_by_address(browser: ProgramHost, lab: Lab) -> None:
    if not six_names(lab):
        pytest.skip("this system has no IPv6 loopback address")
    named = next(each.url for each in lab.manifest.web if "six.lab.test" in each.url)
    literal = named.replace("six.lab.test", "[::1]")
    targets = {"name": {"host": "six.lab.test", "url": named}, "address": {"host": "::1", "url": literal}}

    members = await run(batch_of(browser, "screenshot", targets, resolver=lab.resolver))

    assert {name: [picture.url for picture in pictures_of(member)] for name, member in members.items()} == {
        "name": [named],
        "address": [literal],
    }


async def test_browser_does_not_follow_a_page_to_another_host(browser: ProgramHost, lab: Lab) -> None:
    """`lab.test` on 18080 answers with a redirect to another host name."""
    away = next(
        each for each in lab.manifest.web if each.location and each.url.startswith("http://lab.test:")
    )
    before = lab.hits.copy()

    member = (
        await run(
            batch_of(
                browser, "screenshot", {"a": {"host": "lab.test", "url": away.url}}, resolver=lab.resolver
            )
        )
    )["a"]

    assert {host for host, count in lab.hits.items() if count > before[host]} == {"lab.test"}
    assert member.outcome is Outcome.COMPLETED


async def test_hostile_page_cannot_make_the_browser_contact_anybody_else(browser: ProgramHost) -> None:
    async with serve_http(lambda _: page("you were led here")) as other:
        lures = "".join(
            f'<img src="http://{place}:{other.port}/"><iframe src="http://{place}:{other.port}/"></iframe>'
            for place in ("127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]")
        )
        script = f"<script>fetch('http://127.0.0.1:{other.port}/', {{mode: 'no-cors'}})</script>"
        replies = {
            "/": page(f"<h1>come in</h1>{lures}{script}"),
            "/away": Reply(b"", 302, {"Location": f"http://127.0.0.1:{other.port}/"}),
        }
        async with serve_http(lambda request: replies.get(request.target, page("gone"))) as server:
            origin = f"http://front.test:{server.port}"
            target = {"host": "front.test", "address": server.host}
            targets = {
                "lures": {**target, "url": f"{origin}/"},
                "away": {**target, "url": f"{origin}/away"},
            }
            members = await run(batch_of(browser, "screenshot", targets, allow=["127.0.0.0/8"]))

    assert other.connections == 0
    assert [len(pictures_of(members[name])) for name in ("lures", "away")] == [1, 0]
    assert members["away"].error == "no picture: net::ERR_NAME_NOT_RESOLVED"


async def test_browser_leaves_no_process(browser: ProgramHost, lab: Lab) -> None:
    url = next(each.url for each in lab.manifest.web if "app." in each.url)
    batch = batch_of(
        browser, "screenshot", {"a": {"host": "app.lab.test", "url": url}}, resolver=lab.resolver
    )

    await run(batch)

    assert not any(found.startswith(batch._spec.mark) for _, found in marked_processes())


async def test_service_that_is_gone_is_no_picture_but_a_failure(browser: ProgramHost) -> None:
    targets = {"a": {"host": f"{NETWORK}.11", "url": f"http://{NETWORK}.11:18999/"}}

    member = (await run(batch_of(browser, "screenshot", targets)))["a"]

    assert member.outcome is Outcome.TOOL_FAILED
    assert (member.error or "").startswith("net::ERR_CONNECTION_REFUSED")


async def test_tool_set_without_its_programs_is_left_out(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "nmap"
    other.write_text("#!/bin/sh\necho something else 7.93\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    toolbox = await find_tools({"probe": 3, "nmap": 1, "projectdiscovery": 2, "browser": 1}, launcher)

    assert (dict(toolbox.slots), dict(toolbox.versions)) == ({"probe": 3}, {})
