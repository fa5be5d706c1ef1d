"""`runlane doctor`: is everything here, and does the data hold what it promises?"""

from functools import partial
from pathlib import Path
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from runlane.db.engine import DRIVER_ERRORS
from runlane.db.invariants import INVARIANTS, check
from runlane.db.pool import open_pool
from runlane.settings import Settings
from runlane.stack.doctor import Examine, run_checks
from runlane.stack.doctor_containers import check_containers
from runlane.stack.doctor_gateway import check_gateway
from runlane.stack.findings import Check, Level
from runlane.stack.urls import adopt_running_stack

SIGNS: Final = {Level.OK: "✓", Level.WARN: "!", Level.FAIL: "✗"}


async def run_doctor(state_dir: Path, *, invariants: bool, at_rest: bool) -> list[Check]:
    """Runs the checks against the stack of the folder, or the servers that the environment names."""
    adopt_running_stack(state_dir)
    more: list[Examine] = [check_gateway, check_containers]
    if invariants:
        more.append(partial(_check_invariants, at_rest=at_rest))
    return await run_checks(Settings.load(), more)


async def _check_invariants(settings: Settings, *, at_rest: bool) -> list[Check]:
    redis: Redis = Redis.from_url(settings.redis_url or "redis://127.0.0.1", protocol=2, socket_timeout=10)
    try:
        pool = await open_pool(settings.database_system_url, size=1, name="runlane-doctor")
        try:
            # One snapshot for all statements: a running system moves between two of them.
            async with (
                pool.acquire() as conn,
                conn.transaction(isolation="repeatable_read", readonly=True),
            ):
                violations = await check(conn, redis, at_rest=at_rest)
        finally:
            await pool.close()
    except (*DRIVER_ERRORS, RedisError) as error:
        return [Check("invariants", Level.FAIL, f"cannot be checked: {error}")]
    finally:
        await redis.aclose()
    if not violations:
        return [Check("invariants", Level.OK, f"all hold ({len(INVARIANTS)} statements)")]
    return [
        Check(each.name, Level.FAIL, f"not true of {each.count}: {each.sentence} ({', '.join(each.sample)})")
        for each in violations
    ]
