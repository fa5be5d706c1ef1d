"""The guard: nothing leaves to where it may not, whatever its name says at which moment."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from runlane.errors import Invalid
from runlane.outbound.exchange import Call, exchange
from runlane.outbound.guard import SystemResolver, open_client
from runlane.outbound.reach import Reach, Unfit
from runlane.outbound.transport import Rejected, Unreachable
from runlane.settings import Settings
from tests.receivers import LOOPBACK, Received, Reply, receiver, sender
from tests.unit.probe_servers import server_context
from tests.waiting import until


def ok(_request: Received) -> Reply:
    return Reply(200, b"ok")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:a00:1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:a00:1::]/",
        "https://[fe80::1%25eth0]/",
        "https://[fec0::1]/",
        "https://10.0.0.1/",
        "https://100.64.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://224.0.0.1/",
        "https://0.0.0.0/",
        "https://user:pass@example.com/",
        "https://@example.com/",
        "https://example.com:6379/",
        "https://example.com:22/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "http://example.com/",
        "ftp://example.com/",
        "gopher://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "https:///path",
        "https://exam ple.com/",
        "https://example.com/\r\nHost: inside",
        "https://example.com\\@10.0.0.1/",
        "https://example.com/#part",
        "https://exämple.com/",
        "https://example.com/" + "a" * 2_048,
    ],
)
def test_an_address_that_may_not_be_sent_to_is_not_saved(url: str) -> None:
    with pytest.raises(Unfit):
        Reach().judge(url)


@pytest.mark.parametrize(
    "url", ["https://example.com/hook?x=1", "https://8.8.8.8:8443/", "https://[2001:4860:4860::8888]/"]
)
def test_a_public_address_may_be_saved(url: str) -> None:
    assert Reach().judge(url).scheme == "https"


def test_receivers_of_allowed_networks_may_be_saved_and_metadata_never() -> None:
    reach = Reach.of("10.0.0.0/8, fd00::/8")

    assert reach.judge("http://10.1.2.3:8080/hook").port == 8080
    assert reach.judge("https://[fd00::1]/").hostname == "fd00::1"
    for url in ("http://8.8.8.8/", "https://192.168.0.1/", "https://169.254.169.254/"):
        with pytest.raises(Unfit):
            reach.judge(url)


@pytest.mark.parametrize("networks", ["10.0.0.0/33", "inside", "169.254.0.0/16", "169.254.169.254"])
def test_networks_that_cannot_be_are_refused_at_the_start(networks: str) -> None:
    with pytest.raises(Invalid) as refused:
        Reach.of(networks)

    assert refused.value.code == "settings.outbound_networks"


async def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def rebinding(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0)

    client = open_client(LOOPBACK, resolve=rebinding)
    async with receiver(ok) as served, client:
        first = await exchange(client, Call("GET", served.url, {"Connection": "close"}))
        with pytest.raises(Rejected):
            await exchange(client, Call("GET", served.url))

    assert first.status == 200
    assert len(served.received) == 1
    assert served.received[0].headers["host"] == f"receiver.test:{served.port}"


@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1", "10.0.0.1"),
        ("169.254.169.254",),
        ("::ffff:169.254.169.254",),
        ("64:ff9b::a00:1", "127.0.0.1"),
        ("fe80::1%lo",),
        ("8.8.8.8",),  # plain http is for the allowed networks only
    ],
)
async def test_a_name_with_one_address_that_may_not_be_is_refused_as_a_whole(
    addresses: tuple[str, ...],
) -> None:
    async with receiver(ok) as served, sender(*addresses) as (client, _):
        with pytest.raises(Rejected) as refused:
            await exchange(client, Call("GET", served.url))

    assert not served.received
    assert not any(address in str(refused.value) for address in addresses)


async def test_without_allowed_networks_loopback_is_not_reached_by_any_spelling() -> None:
    async with receiver(ok) as served, open_client(Reach()) as client:
        for host in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]"):
            with pytest.raises((Rejected, Unreachable)):
                await exchange(client, Call("GET", f"https://{host}:{served.port}/"))

    assert not served.received


async def test_a_redirect_is_not_followed() -> None:
    def inside(_request: Received) -> Reply:
        return Reply(302, b"", {"Location": "http://169.254.169.254/latest/meta-data/"})

    async with receiver(inside) as served, sender() as (client, asked):
        answer = await exchange(client, Call("POST", served.url, body=b"{}"))

    assert answer.status == 302
    assert not answer.is_success
    assert asked == ["receiver.test"]


async def test_a_server_of_the_platform_is_not_sent_to_under_any_name() -> None:
    async with receiver(ok) as served:
        own = Reach(LOOPBACK.networks, frozenset({("own.test", served.port)}))
        async with sender(reach=own) as (client, _):
            with pytest.raises(Rejected, match="server of the platform"):
                await exchange(client, Call("GET", served.url))

    assert not served.received


def test_the_settings_name_the_servers_of_the_platform() -> None:
    settings = Settings.load().model_copy(
        update={
            "redis_url": "redis://:pw@redis.inside:6390/0",
            "s3_endpoint": "https://s3.inside",
            "temporal_address": "temporal.inside:7233",
            "database_url": "postgresql://one.inside:1,two.inside:2/db",
        }
    )

    assert Reach.of(**settings.reach).own >= {
        ("redis.inside", 6390),
        ("s3.inside", 443),
        ("temporal.inside", 7233),
    }


async def test_ports_of_other_protocols_are_refused_when_sending_too() -> None:
    async with sender() as (client, asked):
        with pytest.raises(Rejected, match="port 6379"):
            await exchange(client, Call("GET", "http://receiver.test:6379/"))

    assert not asked


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver(ok) as proxy, receiver(ok) as served:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sender() as (client, _):
            await exchange(client, Call("GET", served.url))

    assert len(served.received) == 1
    assert not proxy.received


async def test_a_cookie_of_one_endpoint_is_not_sent_to_another() -> None:
    def baking(_request: Received) -> Reply:
        return Reply(200, b"", {"Set-Cookie": "session=of-one-workspace; Path=/"})

    async with receiver(baking) as served, sender() as (client, _):
        for _attempt in range(2):
            await exchange(client, Call("GET", served.url))

    assert all("cookie" not in request.headers for request in served.received)


async def test_the_second_address_is_tried_when_the_first_takes_no_connection() -> None:
    with socket.create_server(("127.0.0.2", 0)) as closed:
        port = closed.getsockname()[1]
    server = await asyncio.start_server(_answer_once, "127.0.0.3", port)
    async with server, sender("127.0.0.2", "127.0.0.3") as (client, _):
        answer = await exchange(client, Call("GET", f"http://receiver.test:{port}/"))

    assert answer.status == 204


async def _answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 204 Fine\r\nConnection: close\r\n\r\n")
    writer.close()


async def test_a_name_that_nobody_answers_for_takes_one_thread_however_often_it_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_answered, asked = threading.Event(), []

    def slow(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        is_answered.wait()
        return [(0, 0, 0, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolve = SystemResolver()
    impatient = asyncio.create_task(resolve("slow.test", 443))
    patient = asyncio.create_task(resolve("slow.test", 443))
    await until(lambda: asked == ["slow.test"])
    impatient.cancel()
    is_answered.set()

    assert await patient == ["192.0.2.1"]
    assert asked == ["slow.test"]
    assert await resolve("slow.test", 443) == ["192.0.2.1"]
    assert len(asked) == 2


async def test_a_certificate_is_checked_against_the_name_and_the_given_authority(tmp_path: Path) -> None:
    tls = server_context(tmp_path, name="receiver.test")
    names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    authority = str(tmp_path / "receiver.test.pem")
    other = server_context(tmp_path, name="impostor.test")

    async with receiver(ok, tls) as served, receiver(ok, other) as impostor:
        async with sender() as (client, _):
            with pytest.raises(Unreachable, match="not trusted"):
                await exchange(client, Call("GET", f"{served.url}/private-path"))
        async with sender(ca_file=authority) as (client, _):
            answer = await exchange(client, Call("GET", served.url))
            with pytest.raises(Unreachable, match="not trusted"):
                await exchange(client, Call("GET", impostor.url))

    assert answer.status == 200
    assert set(names) == {"receiver.test"}
    assert len(served.received) == 1
    assert not impostor.received
