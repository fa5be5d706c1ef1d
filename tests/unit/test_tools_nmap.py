"""The document of nmap: what is read of it, cut, hostile or of another host."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from runlane.tools import Category
from runlane.tools.adapters import nmap
from runlane.tools.adapters.adapter import Ended, Raw
from runlane.tools.records import MalformedRecord
from tests.unit.program_jobs import is_readable

NMAP = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE nmaprun>
<?xml-stylesheet href="file:///usr/bin/../share/nmap/nmap.xsl" type="text/xsl"?>
<nmaprun scanner="nmap" args="nmap -oX - 127.7.0.11" start="1796060024" version="7.93">
<scaninfo type="connect" protocol="tcp" numservices="3" services="12222,18080,18443"/>
<taskprogress task="NSE" time="1796060025" percent="0.00"/>
<host starttime="1796060025" endtime="1796060029"><status state="up" reason="user-set" reason_ttl="0"/>
<address addr="{address}" addrtype="{kind}"/>
<hostnames>
</hostnames>
<ports><extraports state="closed" count="1"><extrareasons reason="conn-refused" count="1"/></extraports>
<port protocol="tcp" portid="12222"><state state="open" reason="syn-ack" reason_ttl="0"/><service name="ssh" \
method="table" conf="3"/><script id="banner" output="SSH-2.0-OpenSSH_9.6"/></port>
<port protocol="tcp" portid="18443"><state state="open" reason="syn-ack" reason_ttl="0"/>\
<service name="https" tunnel="ssl" method="probed" conf="10"/></port>
<port protocol="tcp" portid="18444"><state state="filtered" reason="no-response" reason_ttl="0"/></port>
</ports>
</host>
<runstats><finished time="1796060029" elapsed="4.34" exit="success"/><hosts up="1" down="0" total="1"/>
</runstats>
</nmaprun>
"""


def read_nmap(text: str, address: str = "127.7.0.11") -> tuple[list[Raw], list[str], nmap.XmlReader]:
    reader = nmap.XmlReader(address, "12222,18080,18443")
    found: list[Raw] = []
    bad: list[str] = []
    for line in text.encode().split(b"\n"):
        try:
            found.extend(reader.feed(line))
        except MalformedRecord as error:
            bad.append(error.reason)
    return found, bad, reader


def ports_of(found: Iterable[Raw]) -> list[object]:
    return [record["port"] for record in found]


def test_nmap_document_is_read_port_by_port() -> None:
    records, bad, reader = read_nmap(NMAP.format(address="127.7.0.11", kind="ipv4"))

    assert bad == []
    assert records == [
        {
            "port": 12222,
            "protocol": "tcp",
            "address": "127.7.0.11",
            "banner": "SSH-2.0-OpenSSH_9.6",
            "tls": None,
        },
        {"port": 18443, "protocol": "tcp", "address": "127.7.0.11", "banner": None, "tls": True},
    ]
    assert is_readable(Category.PORTS_SCANNER, *records)
    conclusion = reader.conclude(Ended(0, ""))
    assert (conclusion.complete, conclusion.failure) == (True, None)
    assert conclusion.coverage == {"ports": "12222,18080,18443", "protocol": "tcp", "address": "127.7.0.11"}


def test_nmap_document_of_an_ipv6_host_is_read() -> None:
    records, bad, _ = read_nmap(NMAP.format(address="0:0:0:0:0:0:0:1", kind="ipv6"), "::1")

    assert bad == []
    assert {record["address"] for record in records} == {"::1"}
    assert is_readable(Category.PORTS_SCANNER, *records)


def test_cut_nmap_document_keeps_the_ports_before_the_cut() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4")

    records, bad, reader = read_nmap(text[: text.index('<port protocol="tcp" portid="18443"')])

    assert (ports_of(records), bad) == ([12222], [])
    assert reader.conclude(Ended(0, "")).failure == "the document has no end"


def test_bad_port_of_an_nmap_document_costs_itself_only() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4").replace('portid="12222"', 'portid="99999999"')

    records, bad, reader = read_nmap(text)

    assert (ports_of(records), len(bad)) == ([18443], 1)
    assert not reader.conclude(Ended(0, "")).failure


def test_nmap_document_of_another_host_brings_nothing() -> None:
    records, bad, _ = read_nmap(NMAP.format(address="127.7.0.12", kind="ipv4"))

    assert records == []
    assert bad[0] == "a port of another address than was asked for"


def test_entities_and_deep_nesting_of_an_nmap_document_are_refused() -> None:
    bomb = NMAP.format(address="127.7.0.11", kind="ipv4").replace(
        "<!DOCTYPE nmaprun>", '<!DOCTYPE nmaprun [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    )
    deep = f"<nmaprun>{'<host>' * 50}"

    assert read_nmap(bomb)[:2] == ([], ["the XML declares entities"])
    assert read_nmap(deep)[:2] == ([], ["the XML is nested too deeply"])


def test_nmap_scan_that_gave_up_on_the_host_is_incomplete() -> None:
    text = NMAP.format(address="127.7.0.11", kind="ipv4").replace("<host ", '<host timedout="true" ')

    conclusion = read_nmap(text)[2].conclude(Ended(0, ""))

    assert (conclusion.complete, conclusion.note) == (False, "the host took too long")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_nmap(data: bytes) -> None:
    read_nmap(NMAP.format(address="127.7.0.11", kind="ipv4")[:700] + data.decode("latin-1"))
