"""Examines open transactions: one that stays open for minutes makes dispatch slower, whoever has it."""

from typing import Final

import asyncpg

from runlane.db.horizon import OpenTransaction, oldest_transaction, sees_all
from runlane.settings import Settings
from runlane.stack.findings import ANSWER_TIMEOUT_S, Check, Level

LONG_S: Final = 300.0
"""Some hundred thousand rows may have died in this time; no statement of ours takes nearly so long."""

_NAME: Final = "oldest transaction"
_BLIND: Final = "those of other roles are not seen: GRANT pg_read_all_stats to the system role"


async def check_transactions(settings: Settings) -> list[Check]:
    """Names the oldest transaction if it has been open for long; nothing while PostgreSQL is away."""
    if not settings.database_system_url:
        return []
    try:
        connection = await asyncpg.connect(settings.database_system_url, timeout=ANSWER_TIMEOUT_S)
        try:
            oldest, sees = await oldest_transaction(connection), await sees_all(connection)
        finally:
            await connection.close()
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return []  # the check of PostgreSQL itself says so
    return [judge(oldest, is_blind=not sees)]


def judge(oldest: OpenTransaction | None, *, is_blind: bool) -> Check:
    """What the oldest transaction means."""
    if oldest is not None and oldest.open_s >= LONG_S:
        cost = "dead rows are kept for it, and dispatch becomes slower until it ends"
        return Check(_NAME, Level.WARN, f"open for {oldest.open_s / 60:.0f} min: {oldest.who}; {cost}")
    if is_blind:
        return Check(_NAME, Level.WARN, _BLIND)
    return Check(_NAME, Level.OK, "none" if oldest is None else f"{oldest.open_s:.0f} s")
