"""The process of the lanes: outbox relay, a loop per lane, command relay, operations and more, kept alive."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from lanes.audit import AuditSink
from lanes.blackouts import run_blackouts
from lanes.commands import run_command_relay
from lanes.evaluations import run_evaluations
from lanes.figures import run_figures
from lanes.integrations import IntegrationsSink
from lanes.loop import LaneConfig, run_lane
from lanes.notifications import NotificationSink
from lanes.operations import run_operations
from lanes.outages import is_transient, new_backoff
from lanes.projection import ProjectionSink
from lanes.projects import ProjectsSink
from lanes.relay import RelayConfig, run_relay
from lanes.reports import run_reports
from lanes.sink import Sink
from lanes.summaries import run_summaries
from lanes.tally import Tallies
from lanes.watch import run_watch
from runlane.backoff import pause
from runlane.errors import Refused
from runlane.settings import Settings

log = structlog.get_logger(__name__)

SINKS: Final[tuple[Sink, ...]] = (
    AuditSink(),
    ProjectionSink(),
    NotificationSink(),
    IntegrationsSink(),
    ProjectsSink(),
)
"""One sink per lane."""

STEADY_S: Final = 30.0
"""A part that ran this long starts again at once when it fails."""

Part = Callable[[asyncio.Event], Awaitable[None]]
"""A loop that runs until the event, and raises when it cannot go on."""


async def run_lanes(settings: Settings, stop: asyncio.Event) -> None:
    """Runs every part until `stop`; a part that fails is started again while the others go on.

    Sets `stop` itself when it ends by an error.

    Raises:
        ExceptionGroup: of a Refused, when a part cannot run on these servers at all.
    """
    tallies = Tallies()
    lane_config = LaneConfig(settings.database_system_url, settings.redis_url, tallies)
    relay_config = RelayConfig(
        settings.database_system_url, settings.redis_url, cap=settings.stream_cap, tallies=tallies
    )
    parts: dict[str, Part] = {
        "relay": lambda event: run_relay(relay_config, event),
        "commands": lambda event: run_command_relay(settings, event),
        "watch": lambda event: run_watch(settings, event),
        "operations": lambda event: run_operations(settings, event),
        "blackouts": lambda event: run_blackouts(settings, event),
        "evaluations": lambda event: run_evaluations(settings, event),
        "summaries": lambda event: run_summaries(settings, event),
        "reports": lambda event: run_reports(settings, tallies, event),
        "figures": lambda event: run_figures(settings, tallies, event),
        **{f"lane_{sink.lane}": _lane(sink, lane_config) for sink in SINKS},
    }
    async with asyncio.TaskGroup() as group:
        for name, part in parts.items():
            group.create_task(_guard(supervise(name, part, stop), stop), name=name)


async def supervise(name: str, part: Part, stop: asyncio.Event) -> None:
    """Runs a part until `stop`, again and again, with growing pauses while it keeps failing.

    Raises:
        Refused: trying again cannot help.
    """
    backoff = new_backoff()
    clock = asyncio.get_running_loop().time
    while not stop.is_set():
        started = clock()
        try:
            await part(stop)
        except Refused:
            raise
        except Exception as error:
            if _is_being_cancelled():
                # a clean-up that failed took the place of the cancellation
                raise asyncio.CancelledError from error
            if clock() - started > STEADY_S:
                backoff.reset()
            if is_transient(error):
                log.warning("part_interrupted", part=name, error=str(error), error_type=type(error).__name__)
            else:
                log.exception("part_failed", part=name)
            await pause(backoff.next(), stop)


async def _guard(running: Awaitable[None], stop: asyncio.Event) -> None:
    """Lets the end of one part stop all: a cancellation alone may get lost in a library."""
    try:
        await running
    finally:
        stop.set()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _lane(sink: Sink, config: LaneConfig) -> Part:
    return lambda stop: run_lane(sink, config, stop)
