"""The lab on real sockets: what its servers say is what its manifest tells."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import closing
from urllib.parse import urlsplit

import dns.asyncquery
import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.zone
import httpx2
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from runlane.errors import Invalid, Unavailable
from runlane.lab.model import SECURITY_HEADERS
from runlane.lab.server import Lab
from tests.waiting import WAIT_S

# Every test process has addresses of its own, so that labs of other processes are not in the way.
BASE = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Visitor:
    """An HTTP client that finds the lab's names through its manifest."""

    def __init__(self, lab: Lab, client: httpx2.AsyncClient) -> None:
        self._addresses = {each.name: each.address or "" for each in lab.manifest.assets}
        self._client = client

    async def get(self, url: str) -> httpx2.Response:
        parts = urlsplit(url)
        host = parts.hostname or ""
        address = self._addresses[host]
        place = url.replace(host, f"[{address}]" if ":" in address else address, 1)
        extensions = {"sni_hostname": host}
        return await self._client.get(place, headers={"Host": parts.netloc}, extensions=extensions)


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab.open(f"{BASE}.0/24") as lab:
        yield lab


@pytest.fixture(scope="module")
async def visitor(lab: Lab) -> AsyncIterator[Visitor]:
    async with httpx2.AsyncClient(verify=any_certificate(), trust_env=False) as client:
        yield Visitor(lab, client)


def resolver_of(lab: Lab) -> dns.asyncresolver.Resolver:
    address, _, port = lab.resolver.partition(":")
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [address], int(port)
    return resolver


def place_of(lab: Lab, host: str) -> str:
    return next(each.address for each in lab.manifest.assets if each.name == host and each.address)


async def conversation(address: str, port: int, words: bytes) -> bytes:
    """Everything that a service says before it closes, `words` being sent at once."""
    reader, writer = await asyncio.open_connection(address, port)
    with closing(writer):
        writer.write(words)
        async with asyncio.timeout(WAIT_S):
            return await reader.read()


async def test_every_asset_resolves_to_its_address(lab: Lab) -> None:
    resolver = resolver_of(lab)

    answers = {
        each.name: await resolver.resolve(each.name, "AAAA" if each.address == "::1" else "A")
        for each in lab.manifest.assets
    }

    assert {name: [str(each) for each in answer] for name, answer in answers.items()} == {
        each.name: [each.address] for each in lab.manifest.assets
    }


async def test_every_record_of_the_manifest_is_served(lab: Lab) -> None:
    resolver = resolver_of(lab)
    wanted = [
        (each.name, kind, values) for each in lab.manifest.assets for kind, values in each.records.items()
    ]

    answers = [await resolver.resolve(name, kind) for name, kind, _ in wanted]

    assert [tuple(sorted(each.to_text() for each in answer)) for answer in answers] == [
        values for _, _, values in wanted
    ]


async def test_long_answer_is_cut_over_udp_and_whole_over_tcp(lab: Lab) -> None:
    address, _, port = lab.resolver.partition(":")
    query = dns.message.make_query("lab.test", "TXT")

    cut = await dns.asyncquery.udp(query, address, port=int(port), timeout=WAIT_S)
    whole = await dns.asyncquery.tcp(query, address, port=int(port), timeout=WAIT_S)

    assert cut.flags & dns.flags.TC
    assert len(whole.answer[0]) == 5


async def test_open_zone_is_transferred_over_tcp(lab: Lab) -> None:
    address, _, port = lab.resolver.partition(":")
    zone = dns.zone.Zone("lab.test", relativize=False)

    await dns.asyncquery.inbound_xfr(address, zone, port=int(port), lifetime=5)

    names = {name.to_text(omit_final_dot=True) for name in zone.nodes}
    assert names == {each.name for each in lab.manifest.assets}


async def test_transfer_over_udp_is_refused(lab: Lab) -> None:
    address, _, port = lab.resolver.partition(":")

    answer = await dns.asyncquery.udp(
        dns.message.make_query("lab.test", "AXFR"), address, port=int(port), timeout=5
    )

    assert answer.rcode() == dns.rcode.REFUSED


async def test_garbage_to_the_name_server_does_not_stop_it(lab: Lab) -> None:
    address, _, port = lab.resolver.partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        response = dns.message.make_response(dns.message.make_query("app.lab.test", "A"))
        for wire in (b"\x00garbage", response.to_wire()):
            datagram.sendto(wire, (address, int(port)))
    assert await conversation(address, int(port), b"\x00\x03abc") == b""

    assert await resolver_of(lab).resolve("app.lab.test", "A")


async def test_every_url_of_the_manifest_has_its_status(lab: Lab, visitor: Visitor) -> None:
    answers = await asyncio.gather(*(visitor.get(each.url) for each in lab.manifest.urls))

    served = {url.url: reply.status_code for url, reply in zip(lab.manifest.urls, answers, strict=True)}
    assert served == {each.url: each.status for each in lab.manifest.urls}


async def test_every_web_service_shows_title_server_and_location(lab: Lab, visitor: Visitor) -> None:
    for web in lab.manifest.web:
        reply = await visitor.get(web.url)

        assert reply.headers["Server"] == web.server
        assert reply.headers.get("Location") == web.location
        assert web.title is None or f"<title>{web.title}</title>" in reply.text


async def test_planted_files_are_there(lab: Lab, visitor: Visitor) -> None:
    planted = {each.check: await visitor.get(each.url) for each in lab.manifest.findings}

    assert planted["exposed-git"].text.startswith("ref: refs/")
    assert "=" in planted["exposed-env"].text
    assert "Index of /" in planted["directory-listing"].text
    sent = planted["missing-security-headers"].headers.keys()
    assert {each.lower() for each in SECURITY_HEADERS} - sent


async def test_locked_site_opens_to_its_login_alone(lab: Lab) -> None:
    url = "http://admin.lab.test:18080/users"
    place = url.replace("admin.lab.test", f"{BASE}.11")
    async with httpx2.AsyncClient(trust_env=False) as client:
        statuses = [
            (await client.get(place, headers={"Host": "admin.lab.test:18080"}, auth=login)).status_code
            for login in (None, ("admin", "wrong"), ("admin", "admin"))
        ]

    assert statuses == [401, 401, 200]


async def test_soft_404_site_has_every_page(visitor: Visitor) -> None:
    reply = await visitor.get("http://static.lab.test:18085/no/such/page")

    assert reply.status_code == 200


async def test_requests_are_counted_by_host(lab: Lab, visitor: Visitor) -> None:
    before = lab.hits.copy()

    await visitor.get("http://app.lab.test:18080/login")

    assert lab.hits - before == {"app.lab.test": 1}


async def test_head_has_no_body_and_post_is_answered(lab: Lab) -> None:
    address = place_of(lab, "app.lab.test")

    head = await conversation(address, 18080, b"HEAD / HTTP/1.1\r\nHost: app.lab.test\r\n\r\n")
    post = await conversation(
        address, 18080, b"POST /login HTTP/1.1\r\nHost: app.lab.test\r\nContent-Length: 3\r\n\r\na=b"
    )

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    assert b"<title>Log in</title>" in post


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo-Host: x\r\n\r\n",
        b"GET http://elsewhere.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n",
    ],
    ids=["tls-hello", "nonsense", "no-host", "proxy-request", "huge-body"],
)
async def test_what_is_no_request_is_refused_at_once(lab: Lab, words: bytes) -> None:
    answer = await conversation(place_of(lab, "app.lab.test"), 18080, words)

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_client_that_leaves_early_does_no_harm(lab: Lab, visitor: Visitor) -> None:
    _, writer = await asyncio.open_connection(place_of(lab, "app.lab.test"), 18080)
    writer.close()
    await writer.wait_closed()

    assert (await visitor.get("http://app.lab.test:18080/")).status_code == 200


async def test_services_that_greet_say_their_banner(lab: Lab) -> None:
    greeting = [each for each in lab.manifest.services if each.banner is not None]

    heard = [await conversation(place_of(lab, each.host), each.port, b"hello\r\n") for each in greeting]

    assert [each.split(b"\r\n")[0].decode() for each in heard] == [each.banner for each in greeting]


async def test_silent_service_closes_without_a_word(lab: Lab) -> None:
    assert await conversation(place_of(lab, "vault-7c2.lab.test"), 19200, b"GET / HTTP/1.1\r\n\r\n") == b""


def peer_certificate(address: str, port: int) -> x509.Certificate:
    with (
        socket.create_connection((address, port), timeout=WAIT_S) as plain,
        any_certificate().wrap_socket(plain) as tls,
    ):
        return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")


def common_name(name: x509.Name) -> str:
    return str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


async def certificate_of(lab: Lab, host: str, port: int) -> x509.Certificate:
    return await asyncio.to_thread(peer_certificate, place_of(lab, host), port)


async def test_self_signed_certificate_issues_itself(lab: Lab) -> None:
    certificate = await certificate_of(lab, "mail.lab.test", 18443)

    assert certificate.issuer == certificate.subject
    assert common_name(certificate.subject) == "mail.lab.test"
    assert certificate.not_valid_after_utc.timestamp() > time.time()


async def test_expired_certificate_is_over_and_not_self_signed(lab: Lab) -> None:
    certificate = await certificate_of(lab, "old.lab.test", 18444)

    assert certificate.not_valid_after_utc.timestamp() < time.time()
    assert certificate.issuer != certificate.subject


async def test_decoy_certificate_is_valid_for_every_name_of_its_machine(lab: Lab) -> None:
    certificate = await certificate_of(lab, "www.lab.test", 18443)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["lab.test", "www.lab.test"]
    assert certificate.issuer != certificate.subject
    assert certificate.not_valid_after_utc.timestamp() > time.time()


async def test_ports_of_the_manifest_are_closed_where_it_names_no_service(lab: Lab) -> None:
    open_places = {(place_of(lab, each.host), each.port) for each in lab.manifest.services}
    everywhere = {(asset.address, port) for asset in lab.manifest.assets for port in lab.manifest.ports}

    for address, port in everywhere - open_places:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, port)


async def test_second_lab_stands_beside_the_first(lab: Lab) -> None:
    octets = BASE.split(".")
    beside = f"127.{octets[1]}.{(int(octets[2]) + 1) % 256}.0/24"

    async with Lab.open(beside, "small") as other:
        answer = await resolver_of(other).resolve("www.lab.test", "A")

        assert str(answer[0]) == beside.replace(".0/24", ".10")
        assert await resolver_of(lab).resolve("app.lab.test", "A")


async def test_second_lab_in_the_same_place_is_refused(lab: Lab) -> None:
    with pytest.raises(Unavailable, match="another program listens there"):
        async with Lab.open(f"{BASE}.0/24"):
            pass


async def test_foreign_program_is_noticed_where_the_lab_has_nothing() -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((f"{BASE}.129", 12525))
        stranger.listen()

        with pytest.raises(Unavailable, match=":12525"):
            async with Lab.open(f"{BASE}.128/26", "small"):
                pass


async def test_closed_lab_frees_its_ports() -> None:
    for _ in range(2):
        async with Lab.open(f"{BASE}.128/26", "small") as lab:
            assert await resolver_of(lab).resolve("www.lab.test", "A")


async def test_open_connections_end_with_the_lab() -> None:
    async with Lab.open(f"{BASE}.128/26", "small") as lab:
        reader, writer = await asyncio.open_connection(place_of(lab, "mail.lab.test"), 12525)
        await reader.readline()

    with closing(writer):
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b""


async def test_slow_lab_delays_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    async with Lab.open(f"{BASE}.128/26", "small", slow_ms=300) as lab:
        for _ in range(2):
            await conversation(place_of(lab, "mail.lab.test"), 12525, b"hello\r\n")

    assert pauses == [0.3, 0.3]


async def test_network_of_other_machines_is_refused() -> None:
    with pytest.raises(Invalid, match="must lie inside"):
        async with Lab.open("10.0.0.0/24"):
            pass
