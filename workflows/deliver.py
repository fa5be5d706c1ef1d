"""Delivers to one endpoint for as long as something is due there. Started, or asked once more, by a command.

The rows decide what is due and when. What is due later has a command of its own, so this workflow never waits
and its history stays short; it is continued anew only between two turns, when nothing is under way.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.deliveries import DeliveryActivities, DeliveryTurn
    from runlane import names

MAX_TURNS: Final = 200
"""Turns of one execution."""

TURN_LIMIT: Final = timedelta(minutes=2)
HEARTBEAT: Final = timedelta(seconds=10)
RETRY: Final = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=30)
)
"""The turn is tried until PostgreSQL answers; endpoints that do not are an outcome."""


@dataclass
class DeliverInput:
    """To which endpoint."""

    integration_id: str


@workflow.defn(name=names.DELIVER_WORKFLOW)
class DeliverWorkflow:
    """Delivers to one endpoint."""

    @workflow.init
    def __init__(self, request: DeliverInput) -> None:
        self._is_called = True

    @workflow.run
    async def run(self, request: DeliverInput) -> int:
        """Answers how many attempts were made."""
        attempts = turns = 0
        while self._is_called:
            if turns == MAX_TURNS:
                workflow.continue_as_new(request)
            turns, self._is_called = turns + 1, False
            answer = await workflow.execute_activity_method(
                DeliveryActivities.deliver,
                DeliveryTurn(request.integration_id),
                task_queue=names.DELIVERY_QUEUE,
                start_to_close_timeout=TURN_LIMIT,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=RETRY,
            )
            attempts += answer.attempts
        return attempts

    @workflow.signal(name=names.NUDGE_SIGNAL)
    def nudge(self) -> None:
        """Asks for one more turn: something is due since the last one began."""
        self._is_called = True
