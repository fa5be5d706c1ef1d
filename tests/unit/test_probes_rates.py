"""A probe keeps to its share: what arrives at the service is never ahead of what the rate has allowed."""

import asyncio
from typing import Any

import pytest

from runlane.probes import webcrawl
from runlane.probes.job import BadInput, parse_job
from runlane.tools.adapters import naabu, nmap, nuclei
from runlane.tools.adapters.adapter import ToolJob, Workplace
from runlane.tools.adapters.options import Options
from tests.unit.probe_servers import LOOPBACK, Reply, Request, page, serve_http

JOB = ToolJob("job", "127.0.0.1", "127.0.0.1", 80, "http://127.0.0.1:80/")
HERE = Workplace("folder")
PAGES = 40


async def test_jobs_of_one_target_together_send_no_more_than_their_shares_add_up_to() -> None:
    loop, arrivals = asyncio.get_running_loop(), list[float]()

    def respond(_: Request) -> Reply:
        arrivals.append(loop.time())
        return page("".join(f'<a href="/{number}">x</a>' for number in range(PAGES)))

    async def crawl(port: int, share: int) -> None:
        target = {"host": "127.0.0.1", "kind": "host", "port": port, "tls": False, "rate_per_s": share}
        fields: dict[str, Any] = {"target": target, "options": {"allow": LOOPBACK}}
        await webcrawl.run_job(parse_job("job", fields, 60.0), emit)

    async def emit(_: object) -> None:
        pass

    shares = (40, 60)
    async with serve_http(respond) as server:
        begun = loop.time()
        await asyncio.gather(*(crawl(server.port, share) for share in shares))

    assert len(arrivals) >= len(shares) * PAGES
    # a bucket that is filled at the rate and holds one for each job: nothing may arrive before it is in there
    for number, moment in enumerate(arrivals, start=1):
        assert number <= sum(shares) * (moment - begun) + len(shares) + 1e-6


@pytest.mark.parametrize("rate", [0, -1, "5", True, 1.5])
def test_share_that_is_no_number_is_refused(rate: object) -> None:
    fields: dict[str, Any] = {"target": {"host": "a.test", "rate_per_s": rate}, "options": {}}
    with pytest.raises(BadInput, match="rate_per_s"):
        parse_job("job", fields, 60.0)


def test_foreign_programs_are_told_the_share_and_do_nothing_beside_it() -> None:
    free, rated = Options(values={"rate": 40}), Options(values={"rate": 40, "services": True}, rate_per_s=7)

    ports = nmap.scan(JOB, rated, HERE)[0].argv
    assert "--max-rate" in ports
    assert ports[ports.index("--max-rate") + 1] == "7"
    assert not {"-sV", "--script"} & set(ports)
    assert "--max-rate" not in nmap.scan(JOB, free, HERE)[0].argv
    many = naabu.command([JOB], rated, HERE).argv
    assert many[many.index("-rate") + 1] == "7"
    assert "-verify" not in many
    assert "-verify" in naabu.command([JOB], free, HERE).argv
    for options, rate in ((free, "40"), (rated, "7")):
        argv = nuclei.command([JOB], options, HERE).argv
        assert argv[argv.index("-rate-limit") + 1] == rate
