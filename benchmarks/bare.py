"""Bare Temporal: a workflow that runs no-op activities, 64 at a time, on workers of their own processes.

Run as `python -m benchmarks.bare workflow|activity ADDRESS` for the two worker processes.
"""

import asyncio
import sys
import time
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

WORKFLOW_QUEUE = "bench-workflow"
ACTIVITY_QUEUE = "bench-activity"
WINDOW = 64


@activity.defn
async def noop(number: int) -> int:
    """Does nothing."""
    return number


@workflow.defn
class BareActivities:
    """Runs `count` no-op activities, `WINDOW` at a time."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Runs them all; answers how many it ran."""
        window = asyncio.Semaphore(WINDOW)

        async def one(number: int) -> None:
            async with window:
                await workflow.execute_activity(
                    noop, number, task_queue=ACTIVITY_QUEUE, start_to_close_timeout=timedelta(minutes=1)
                )

        await asyncio.gather(*(one(number) for number in range(count)))
        return count


async def measure(client: Client, count: int) -> float:
    """Activities per second over one workflow of `count`."""
    began = time.perf_counter()
    await client.execute_workflow(BareActivities.run, count, id=f"bare-{uuid4()}", task_queue=WORKFLOW_QUEUE)
    return count / (time.perf_counter() - began)


async def _serve(kind: str, address: str) -> None:
    client = await Client.connect(address)
    if kind == "workflow":
        worker = Worker(client, task_queue=WORKFLOW_QUEUE, workflows=[BareActivities])
    else:
        worker = Worker(client, task_queue=ACTIVITY_QUEUE, activities=[noop])
    await worker.run()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
