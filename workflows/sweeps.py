"""A sweep: its parts one after another, each turn by turn until it is done. Started by its schedule.

A part that fails does not keep the others from theirs; the workflow fails in the end, so that it is seen.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.sweeps import SweepActivities, SweepAnswer, SweepTurn
    from runlane import names
    from runlane.sweeps import Report

MAX_TURNS: Final = 500
"""Turns of one part: what is left then is for the next sweep, and the history stays small."""

TURN_LIMIT: Final = timedelta(minutes=10)
HEARTBEAT: Final = timedelta(seconds=30)
RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=2), backoff_coefficient=2, maximum_attempts=3)
"""A server that is away for longer is met by the next sweep."""


@dataclass
class SweepInput:
    """Name of the sweep and its parts, in order: what a newer version does otherwise is not replayed."""

    name: str
    parts: list[str]


@dataclass
class PartReport:
    """What one part did. `error`: why it could not go on."""

    examined: int = 0
    changed: int = 0
    failed: int = 0
    turns: int = 0
    error: str = ""


@dataclass
class SweepResult:
    """What the sweep did, by part."""

    name: str
    parts: dict[str, PartReport] = field(default_factory=dict)


@workflow.defn(name=names.SWEEP_WORKFLOW)
class SweepWorkflow:
    """Does one sweep."""

    @workflow.init
    def __init__(self, request: SweepInput) -> None:
        self._result = SweepResult(request.name)

    @workflow.run
    async def run(self, request: SweepInput) -> SweepResult:
        """Sweeps; fails in the end if a part could not be done."""
        for part in request.parts:
            self._result.parts[part] = PartReport()
            try:
                await self._sweep(part)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                self._result.parts[part].error = str(error.cause or error)[:500]
            self._show()
        broken = {part: report.error for part, report in self._result.parts.items() if report.error}
        if broken:
            said = "; ".join(f"{part}: {error}" for part, error in broken.items())
            raise ApplicationError(said, self._result, type="sweep.incomplete", non_retryable=True)
        return self._result

    async def _sweep(self, part: str) -> None:
        report = self._result.parts[part]
        turn = SweepTurn(part)
        while report.turns < MAX_TURNS:
            answer: SweepAnswer = await workflow.execute_activity_method(
                SweepActivities.sweep,
                turn,
                task_queue=names.SWEEP_QUEUE,
                start_to_close_timeout=TURN_LIMIT,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=RETRY,
                summary=f"{part}, turn {report.turns + 1}",
            )
            report.turns += 1
            done = Report(report.examined, report.changed, report.failed)
            done += Report(answer.examined, answer.changed, answer.failed)
            report.examined, report.changed, report.failed = done.examined, done.changed, done.failed
            if not answer.cursor:
                return
            turn = SweepTurn(part, answer.cursor)
            self._show()

    def _show(self) -> None:
        rows = "\n".join(
            f"| {name} | {each.examined} | {each.changed} | {each.failed} |"
            for name, each in self._result.parts.items()
        )
        workflow.set_current_details(f"| part | examined | changed | failed |\n|-|-|-|-|\n{rows}")
