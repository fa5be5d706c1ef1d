"""GET requests of a probe: pinned to judged addresses, bounded in bytes and time, following nothing."""

import asyncio
import codecs
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Final, Self

import httpx2

from runlane.probes.body import BoundedBody
from runlane.probes.egress import Egress
from runlane.probes.tls import TlsSession, permissive_context, session_of
from runlane.tools.urls import Url

USER_AGENT: Final = "Mozilla/5.0 (compatible; Runlane)"
MAX_BODY_BYTES: Final = 1024 * 1024
"""Bytes of a body that are read, after decompression."""

REQUEST_S: Final = 15.0
"""Seconds for one request from connecting to the last byte that is read."""

_TIMEOUTS: Final = {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 10.0}
_CHARSETS: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "latin-1", "iso8859-2", "iso8859-5", "iso8859-9", "iso8859-15", "koi8-r", "utf-16"),
        *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257"),
        *("shift_jis", "euc_jp", "iso2022_jp", "gbk", "gb2312", "gb18030", "big5", "euc_kr"),
    )
)
_HEADERS: Final = {
    "User-Agent": USER_AGENT,
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",  # what BoundedBody understands
    "Connection": "keep-alive",
}
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class NoAnswer(Exception):
    """The service gave no HTTP answer: not reachable, another protocol, broken, or too slow."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, of whatever status."""

    url: Url
    status: int
    headers: Mapping[str, str]
    """Names in lower case; values of a repeated name joined by comma and space."""
    cookies: tuple[str, ...]
    """Names of the cookies that it sets."""
    body: bytes
    is_cut: bool
    """Whether the body is longer than what was read."""
    elapsed_ms: int
    """From the request to the headers."""
    tls: TlsSession | None

    @property
    def content_type(self) -> str:
        """Media type in lower case without parameters; empty if absent."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_html(self) -> bool:
        """Whether a browser would render it."""
        return self.content_type in {"text/html", "application/xhtml+xml"}

    @property
    def text(self) -> str:
        """The body as text, never failing: by its declared charset if it is a known one, else UTF-8."""
        _, _, charset = self.headers.get("content-type", "").lower().partition("charset=")
        try:
            name = codecs.lookup(charset.partition(";")[0].strip(" \"'")).name
        except (LookupError, ValueError):
            name = "utf-8"
        return self.body.decode(name if name in _CHARSETS else "utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Home:
    """The service that a job is about, and what is sent to it alone: headers may hold credentials."""

    host: str = ""
    port: int = 0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def headers_for(self, url: Url) -> Mapping[str, str]:
        """What is sent to a URL: nothing to another host or port, where a redirect or link may lead."""
        return self.headers if (url.host, url.port) == (self.host, self.port) else _NO_HEADERS


_NOWHERE: Final = Home()


class WebClient:
    """HTTP connections of one job. `addresses` says where known hosts live, the others are resolved."""

    def __init__(self, egress: Egress, addresses: Mapping[str, str], home: Home = _NOWHERE) -> None:
        self._egress = egress
        self._home = home
        self._addresses = dict(addresses)
        self._context = permissive_context()
        # by host, not by address: hosts that share an address must not share TLS connections
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    async def get(
        self, url: Url, max_body: int = MAX_BODY_BYTES, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Answer:
        """One request, tried again once if a kept connection turns out to be closed; `headers` are added.

        Raises:
            NoAnswer: see there.
            Refused: the policy forbids every address of the host, or the URL is excluded.
            NoVerdict: the DNS server did not answer.
        """
        self._egress.permit_place(url.host, url.port)
        address = await self._address_of(url.host)
        await self._egress.pace()
        try:
            async with asyncio.timeout(REQUEST_S):
                request = _request(url, address, self._home.headers_for(url), headers)
                return await self._ask(request, url, max_body)
        except (httpx2.TransportError, ssl.SSLError, OSError) as error:
            raise NoAnswer(f"{url}: {type(error).__name__}: {error}") from error

    async def _ask(self, request: httpx2.Request, url: Url, max_body: int) -> Answer:
        may_be_kept = url.host in self._transports
        try:
            return await self._exchange(request, url, max_body)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if not may_be_kept:
                raise
        await self._egress.pace()
        return await self._exchange(request, url, max_body)

    async def _address_of(self, host: str) -> str:
        if host not in self._addresses:
            addresses = await self._egress.resolve(host)
            if not addresses:
                raise NoAnswer(f"{host} has no address")
            self._addresses[host] = addresses[0]
        return self._egress.permit(self._addresses[host])

    async def _exchange(self, request: httpx2.Request, url: Url, max_body: int) -> Answer:
        started = time.monotonic()
        response = await self._transport(url.host).handle_async_request(request)
        elapsed_ms = round((time.monotonic() - started) * 1_000)
        try:
            tls = _session_of(response)
            body = BoundedBody(max_body, response.headers.get("content-encoding", ""))
            async for chunk in response.stream:  # type: ignore[union-attr] # an async transport's is async
                if not body.feed(chunk):
                    break
        finally:
            await response.aclose()
        return Answer(
            url=url,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            cookies=tuple(
                cookie.partition("=")[0].strip() for cookie in response.headers.get_list("set-cookie")
            ),
            body=body.value(),
            is_cut=body.is_cut,
            elapsed_ms=elapsed_ms,
            tls=tls,
        )

    def _transport(self, host: str) -> httpx2.AsyncHTTPTransport:
        if host not in self._transports:
            self._transports[host] = httpx2.AsyncHTTPTransport(
                verify=self._context,
                trust_env=False,
                limits=httpx2.Limits(max_connections=10, max_keepalive_connections=10, keepalive_expiry=5.0),
            )
        return self._transports[host]


def _request(url: Url, address: str, *added: Mapping[str, str]) -> httpx2.Request:
    literal = f"[{address}]" if ":" in address else address
    headers = httpx2.Headers(_HEADERS)
    for more in added:
        headers.update(more)  # in whatever case a name is written
    target = f"{url.path}?{url.query}" if url.query else url.path
    return httpx2.Request(
        "GET",
        f"{url.scheme}://{literal}:{url.port}/",
        headers=[("Host", url.authority), *headers.items()],
        extensions={"timeout": _TIMEOUTS, "sni_hostname": url.host, "target": target.encode()},
    )


def _session_of(response: httpx2.Response) -> TlsSession | None:
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("ssl_object") if stream is not None else None
    return session_of(connection) if connection is not None else None
