"""Time limits and retry policies of every activity, in one place."""

from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy


class LocalOptions(TypedDict):
    """Options of a local activity."""

    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy


ROWS: LocalOptions = {
    "start_to_close_timeout": timedelta(seconds=30),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        backoff_coefficient=2,
        maximum_interval=timedelta(seconds=5),
    ),
}
"""Short transactions on rows: local, tried until PostgreSQL answers."""

ADMIT_START_TO_CLOSE = timedelta(minutes=10)
ADMIT_HEARTBEAT = timedelta(seconds=10)
"""A turn of admission whose worker died is done by another after this, behind the step's cursor."""

SETTLE_START_TO_CLOSE = timedelta(minutes=30)
SETTLE_HEARTBEAT = timedelta(seconds=10)
"""A merge whose worker died is done by another after this; one that was only slow is met by its row locks."""

SETTLE_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=30)
)
"""The merge is tried until its servers answer; what fails on its data counts on the attempt's row instead."""

SETTLE_AGAIN_S = 30.0
"""A settle that failed for good is a bug of ours: its batches wait this long for a mended result worker."""

BATCH_RETRY = RetryPolicy(maximum_attempts=1)
"""A batch is never retried by Temporal: its jobs go back to their rows and are dispatched anew."""

WAIT = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

CANCEL_WAIT = timedelta(seconds=60)
"""A cancelled workflow waits this long for its batches to say that their processes are dead."""
