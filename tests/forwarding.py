"""What is between a client and a server: everything is passed on, both ways."""

import asyncio
from contextlib import suppress

_CHUNK = 65_536


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Passes a connection on to a server, until both sides have ended it.

    Raises:
        OSError: the server cannot be reached; the connection is left as it is.
    """
    inner_reader, inner_writer = await asyncio.open_connection(host, port)
    await asyncio.gather(_pipe(reader, inner_writer), _pipe(inner_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
