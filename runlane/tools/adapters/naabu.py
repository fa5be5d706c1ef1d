"""naabu: open ports of many addresses. Sample: `{"ip": "192.0.2.7", "port": 443, "protocol": "tcp"}`.

It is given addresses, never names, so it resolves nothing.
"""

from collections.abc import Sequence
from typing import Final

from runlane.tools.adapters.adapter import (
    Adapter,
    Command,
    Conclusion,
    Found,
    Many,
    Raw,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.jsonl import read_object
from runlane.tools.adapters.options import Options, Ports, Whole
from runlane.tools.adapters.projectdiscovery import GO_ADDRESS_SPACE, program
from runlane.tools.portlists import format_ports
from runlane.tools.workloads import NAABU_TRIES


def _address_of(job: ToolJob) -> str:
    if job.address is None:
        raise BadTarget("an address is needed")
    return job.address


def command(jobs: Sequence[ToolJob], options: Options, _place: Workplace) -> Command:
    """One address a line on standard input."""
    addresses = sorted({_address_of(job) for job in jobs})
    argv = (
        *("naabu", "-json", "-silent", "-no-color", "-disable-update-check"),
        *("-scan-type", "c", "-Pn"),
        *(() if options.rate_per_s else ("-verify",)),  # what it does then is not counted by its rate
        *("-port", format_ports(options.ports("ports"))),
        *("-rate", str(options.rate("rate", 1_000))),
        *("-retries", str(options.whole("retries", NAABU_TRIES))),
        *("-stats", "-stats-interval", "5"),
    )
    return Command(argv, "".join(f"{address}\n" for address in addresses).encode())


def read(line: bytes) -> Found:
    """Reads one open port."""
    fields = read_object(line)
    address = fields.host("ip")
    record: dict[str, object] = {
        "port": fields.integer("port", 1, 65_535),
        "protocol": fields.one_of("protocol", frozenset({"tcp", "udp"}))
        if "protocol" in fields.values
        else "tcp",
        "address": address,
        "banner": None,
        # false is also what it says when it has not tried
        "tls": True if fields.values.get("tls") is True else None,
    }
    return Found(address, record)


def conclude(job: ToolJob, options: Options, records: Sequence[Raw]) -> Conclusion:
    """A host with no open port at all has not shown that it can be reached."""
    coverage = {
        "ports": format_ports(options.ports("ports")),
        "protocol": "tcp",
        "address": _address_of(job),
    }
    return Conclusion(complete=True, reachable=bool(records), coverage=coverage)


ADAPTER: Final = Adapter(
    programs=(program("naabu"),),
    schema={"ports": Ports(), "rate": Whole(1, 100_000), "retries": Whole(1, 10)},
    way=Many(command, _address_of, read, conclude),
    silence_s=120,
    needs_home=True,
    address_space_bytes=GO_ADDRESS_SPACE,
)
