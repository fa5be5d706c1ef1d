"""Examines an installation: what is there, what is missing, and what each missing thing costs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from runlane.settings import Settings
from runlane.stack.doctor_program import check_machine, check_program
from runlane.stack.doctor_servers import check_postgres, check_redis, check_s3
from runlane.stack.doctor_sweeps import check_sweeps
from runlane.stack.doctor_temporal import check_temporal
from runlane.stack.doctor_transactions import check_transactions
from runlane.stack.findings import Check

Examine = Callable[[Settings], Awaitable[list[Check]]]
"""One examination. It reports trouble as checks and raises nothing for a server that is away."""

SERVERS: tuple[Examine, ...] = (
    check_postgres,
    check_transactions,
    check_redis,
    check_s3,
    check_temporal,
    check_sweeps,
)


async def run_checks(settings: Settings, more: Sequence[Examine] = ()) -> list[Check]:
    """Runs every check, and `more` if asked; all at the same time, answered in a fixed order.

    Writes one object into the bucket and a few workflows into Temporal, and removes them again.
    """
    answers = await asyncio.gather(
        asyncio.to_thread(check_program),
        asyncio.to_thread(check_machine, settings),
        *(examine(settings) for examine in (*SERVERS, *more)),
    )
    return [check for answer in answers for check in answer]
