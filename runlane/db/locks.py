"""Advisory locks: who may do what there must be one of. No other module names a lock."""

from typing import Final

from runlane.db.pool import Connection

_CLASS: Final = 0x52554E4C
"""First half of the key of all our locks, apart from those of other programs in the same database."""

RELAY_LEADER: Final = "relay.leader"
RELAY_TURN: Final = "relay.turn"
SUMMARIES: Final = "summaries"


def lane_turn(lane: str) -> str:
    """Lock under which one instance at a time drives a lane."""
    return f"lane.{lane}"


async def try_lock(conn: Connection, name: str) -> bool:
    """Takes a lock until the end of the transaction; False when another has it. Never waits."""
    taken: bool = await conn.fetchval("SELECT pg_try_advisory_xact_lock($1, hashtext($2))", _CLASS, name)
    return taken


async def try_hold(conn: Connection, name: str) -> bool:
    """Takes a lock for as long as the connection lives; False when another has it. Never waits."""
    taken: bool = await conn.fetchval("SELECT pg_try_advisory_lock($1, hashtext($2))", _CLASS, name)
    return taken
