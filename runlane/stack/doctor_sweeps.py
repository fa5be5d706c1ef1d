"""Examines the schedules of the sweeps: one that is missing or paused is an installation that grows."""

import asyncio
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from runlane.settings import Settings
from runlane.stack.findings import Check, Level
from runlane.sweeps import SWEEPS
from workflows.sweep_schedules import SweepState, read_schedule

CONNECT_TIMEOUT_S: Final = 5.0
_NAME: Final = "sweeps"


async def check_sweeps(settings: Settings) -> list[Check]:
    """Whether every sweep has its schedule and none is paused; nothing while Temporal is away."""
    if not settings.temporal_address:
        return []
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
            states = await asyncio.gather(*(read_schedule(client, sweep) for sweep in SWEEPS.values()))
    except (RPCError, RuntimeError, TimeoutError):
        return []  # the check of Temporal itself says so
    return [_judge(states)]


def _judge(states: list[SweepState]) -> Check:
    missing = [state.sweep.name for state in states if not state.is_there]
    paused = [f"{s.sweep.name} ({s.note})" if s.note else s.sweep.name for s in states if s.is_paused]
    faults = [
        f"{fault}: {', '.join(found)}"
        for fault, found in (("missing, `runlane worker core` makes them", missing), ("paused", paused))
        if found
    ]
    if faults:
        return Check(_NAME, Level.WARN, "; ".join(faults))
    return Check(_NAME, Level.OK, f"{len(states)} schedules")
