"""Examines the sweeps: where one is missing, paused or failing, an installation grows and does not mend."""

import asyncio
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from runlane.settings import Settings
from runlane.stack.findings import Check, Level
from runlane.sweeps import SWEEPS
from workflows.sweep_schedules import SweepState, has_failed, read_schedule

CONNECT_TIMEOUT_S: Final = 5.0
_NAME: Final = "sweeps"


async def check_sweeps(settings: Settings) -> list[Check]:
    """Whether every sweep has its schedule, none is paused or fails; nothing while Temporal is away."""
    if not settings.temporal_address:
        return []
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
            states = await asyncio.gather(*(read_schedule(client, sweep) for sweep in SWEEPS.values()))
            failed = await asyncio.gather(*(has_failed(client, state) for state in states))
    except (RPCError, RuntimeError, TimeoutError):
        return []  # the check of Temporal itself says so
    return [_judge(states, [s.sweep.name for s, is_failed in zip(states, failed, strict=True) if is_failed])]


def _judge(states: list[SweepState], failed: list[str]) -> Check:
    missing = [state.sweep.name for state in states if not state.is_there]
    paused = [f"{s.sweep.name} ({s.note})" if s.note else s.sweep.name for s in states if s.is_paused]
    faults = [
        f"{fault}: {', '.join(found)}"
        for fault, found in (
            ("missing, `runlane worker core` makes them", missing),
            ("paused", paused),
            ("not all was done the last time", failed),
        )
        if found
    ]
    if faults:
        return Check(_NAME, Level.WARN, "; ".join(faults))
    return Check(_NAME, Level.OK, f"{len(states)} schedules")
