"""Notices of PostgreSQL, heard on a connection of their own for as long as it lives."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from runlane.db.pool import Connection


@asynccontextmanager
async def listening(
    conn: Connection, channel: str, hear: Callable[[str | None], None]
) -> AsyncIterator[None]:
    """Calls `hear` with the text of each notice, and with None when the connection is gone for good.

    A pool mends itself unseen, so whoever listens must act on the None.
    """

    def on_notice(_conn: object, _pid: int, _channel: str, text: object) -> None:
        hear(str(text))

    is_gone = False

    def on_end(_conn: object) -> None:
        nonlocal is_gone
        is_gone = True
        hear(None)

    conn.add_termination_listener(on_end)
    await conn.add_listener(channel, on_notice)
    try:
        yield
    finally:
        if not is_gone:  # the pool has taken it back already, and nothing may be asked of it
            conn.remove_termination_listener(on_end)
            await conn.remove_listener(channel, on_notice)
