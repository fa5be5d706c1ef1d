"""The two postures of publishing.

`outbox.insert` in the transaction of the cause is the throwing one: the event belongs to the operation, and
without it the operation does not happen. Here is the other: the operation goes on without its event.
Source: Event bridge, Publishing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import asyncpg

from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.db.publish_counts import COUNTS
from runlane.errors import UnknownEvent
from runlane.events import Envelope

QUIET_S: Final = 2.0
"""How long a caller is held up at most by an event that it does not wait for."""


async def publish_quietly(conn: Connection, envelopes: Sequence[Envelope]) -> bool:
    """Writes events in a short transaction of their own; what goes wrong is counted, logged and not raised.

    Call it outside of a transaction: inside of one, whatever rolls that back takes the events along. False:
    they are lost. The stream has no part in it: while that is away, events wait in the outbox.
    """
    try:
        async with asyncio.timeout(QUIET_S), conn.transaction():
            await outbox.insert(conn, envelopes)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, UnknownEvent) as error:
        for each in envelopes:
            COUNTS.note_swallowed(each.type, error)
        return False
    return True
