"""A listening TCP port whose open connections end with it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_TLS_PATIENCE_S = 5.0


class Connections:
    """One listening port; every connection runs `serve` in a task of its own and is closed after it.

    A client that goes away, breaks TLS or stays silent ends its own connection only.
    """

    def __init__(self, serve: Serve, latency_s: float = 0.0, tls: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._latency_s = latency_s
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, address: str, port: int) -> int:
        """Starts to listen; port 0 takes a free one. Returns the port.

        Raises:
            OSError: the address or the port cannot be had.
        """
        patience_s = None if self._tls is None else _TLS_PATIENCE_S
        self._server = await asyncio.start_server(
            self._accept,
            address,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=patience_s,
            ssl_shutdown_timeout=patience_s,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stops listening and ends what is open. Harmless when called twice."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._server.is_serving():
            writer.transport.abort()  # accepted while closing: nothing would end it
            return
        task = asyncio.create_task(self._run(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(self._latency_s)
            await self._serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("lab_connection_broken", reason=repr(error))
        finally:
            writer.transport.abort()
