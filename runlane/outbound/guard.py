"""The guard: resolves, judges every answer, and connects to the address that was judged.

A name that leads to one address that may not be contacted is refused as a whole, and is never resolved again
between judging and connecting. Host and SNI keep the name. No redirect, no proxy, no cookie.
Source: OWASP, Server-Side Request Forgery Prevention.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, TypeAlias

import httpcore2
import httpx2

from runlane.outbound.reach import Reach, Unfit, permit_port
from runlane.outbound.transport import CONNECT_S, TOTAL_S, Rejected
from runlane.tools.addresses import parse_address

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Addresses of a name, in the order in which they are tried."""

MAX_ADDRESSES: Final = 3
"""Addresses of one name that are tried."""

RESOLVER_THREADS: Final = 64
"""Names that are resolved at once."""

_HEADERS: Final = {"User-Agent": "Runlane", "Accept": "*/*", "Accept-Encoding": "identity"}


def open_client(reach: Reach, ca_file: str = "", resolve: Resolve | None = None) -> httpx2.AsyncClient:
    """A client whose every connection passes the guard. Close it when the process ends.

    `ca_file`: certificates of authorities that are trusted besides those of the system.

    Raises:
        OSError: the file cannot be read, or holds no certificate (`ssl.SSLError` is one).
    """
    context = httpx2.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(ca_file)
    return httpx2.AsyncClient(
        transport=GuardedTransport(reach, context, resolve or SystemResolver()),
        # one jar would carry what one workspace's endpoint sets to that of another on the same host
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers=_HEADERS,
        follow_redirects=False,
        trust_env=False,
        timeout=httpx2.Timeout(TOTAL_S, connect=CONNECT_S),
    )


class SystemResolver:
    """Addresses as this host's resolver gives them, each once.

    It has threads of its own: a call of the system cannot be stopped, and names whose servers do not answer
    would hold up everything else that is done in threads. Each name is asked for once at a time, so that such
    a name takes one thread, however often it is tried.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolve")
        self._asking: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Resolves one name.

        Raises:
            OSError: it leads nowhere, or nobody says.
        """
        asking = self._asking.get(host)
        if asking is None:
            asking = asyncio.get_running_loop().run_in_executor(self._threads, _ask, host, port)
            self._asking[host] = asking
            asking.add_done_callback(lambda _: self._asking.pop(host, None))
        return await asyncio.shield(asking)  # who has waited long enough leaves it to the others


def _ask(host: str, port: int) -> Sequence[str]:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for *_, where in answers))


class GuardedTransport(httpx2.AsyncBaseTransport):
    """HTTP over connections that the guard makes; plain `http` to the allowed networks only."""

    def __init__(self, reach: Reach, context: ssl.SSLContext, resolve: Resolve) -> None:
        self._pools = {
            "https": _pool(context, GuardedBackend(reach, resolve, is_inside=False)),
            "http": _pool(context, GuardedBackend(reach, resolve, is_inside=True)),
        }

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request.

        Raises:
            Rejected: the guard does not let it out.
        """
        url = request.url
        pool = self._pools.get(url.scheme)
        if pool is None or url.userinfo:
            raise Rejected("neither https nor http, or with a user in the address")
        answer = await pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Stream(answer), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        """Closes all connections."""
        for pool in self._pools.values():
            await pool.aclose()


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connections to judged addresses. `is_inside`: only to those of the allowed networks."""

    def __init__(self, reach: Reach, resolve: Resolve, *, is_inside: bool) -> None:
        self._reach = reach
        self._resolve = resolve
        self._is_inside = is_inside
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 # the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first judged address that takes one.

        Raises:
            Rejected: one of the addresses, or the port, may not be contacted.
            httpcore2.ConnectError, httpcore2.ConnectTimeout: no connection.
        """
        whole = CONNECT_S if timeout is None else timeout
        try:
            async with asyncio.timeout(whole):
                addresses = await self._judged(host, port)
                return await self._first(addresses, port, whole, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("no connection in time") from error

    async def _judged(self, host: str, port: int) -> Sequence[str]:
        try:
            permit_port(port)
        except Unfit as error:
            raise Rejected(str(error)) from error
        addresses = await self._addresses(host, port)
        if not all(self._reach.allows(address, is_inside=self._is_inside) for address in addresses):
            # which address it is tells what our resolver knows of the inside
            raise Rejected(f"{host} leads to an address that may not be contacted")
        await self._refuse_own(host, port, addresses)
        return addresses[:MAX_ADDRESSES]

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if parse_address(host) is not None:
            return [host]
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError("its name leads to no address") from error
        if not addresses:
            raise httpcore2.ConnectError("its name leads to no address")
        return addresses

    async def _refuse_own(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Our own servers often stand in networks that are allowed; they are known by address and port."""
        for own_host in (known for known, known_port in self._reach.own if known_port == port):
            with suppress(OSError, UnicodeError):  # what has no address now cannot be what was resolved
                own = [own_host] if parse_address(own_host) else await self._resolve(own_host, port)
                if own_host == host or set(own) & set(addresses):
                    raise Rejected(f"{host}:{port} is a server of the platform")

    async def _first(
        self,
        addresses: Sequence[str],
        port: int,
        whole: float,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None,
    ) -> httpcore2.AsyncNetworkStream:
        fault: Exception = httpcore2.ConnectError("no connection")
        for address in addresses:
            try:
                return await self._sockets.connect_tcp(
                    address, port, whole / len(addresses), socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                fault = error
        raise fault


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


def _pool(context: ssl.SSLContext, backend: httpcore2.AsyncNetworkBackend) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=context,
        # whoever sends bounds how much at once; a bound here would have endpoints wait for slower ones
        max_connections=None,
        max_keepalive_connections=20,
        keepalive_expiry=5.0,
        network_backend=backend,
    )
