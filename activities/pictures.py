"""Pictures of web services on their way from a staged result to their own bucket.

They are written before the transaction that refers to them, so that no row names an object that is not there.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from activities.bodies import Found
from runlane import names
from runlane.db.settle import Attempt, Decision
from runlane.storage import Storage
from runlane.tools.screenshot import ScreenshotRecord


async def put_pictures(
    storage: Storage, attempts: Sequence[Attempt], found: Mapping[UUID, Found]
) -> dict[UUID, str]:
    """Writes the picture of each attempt that brought one; answers keys by job.

    An attempt has one key, so a second run writes the same object again.
    """
    keys: dict[UUID, str] = {}
    for attempt in attempts:
        records = found[attempt.job_id].parsed.records if attempt.job_id in found else ()
        first = next(iter(records), None)
        if isinstance(first, ScreenshotRecord):
            key = names.picture_key(attempt.workspace_id, attempt.run_id, attempt.job_id, attempt.attempt)
            await storage.put(key, first.png)
            keys[attempt.job_id] = key
    return keys


def unwanted(pictures: Mapping[UUID, str], decisions: Sequence[Decision]) -> list[str]:
    """Keys of pictures that the merge has left out.

    Those of jobs that were not decided here stay: another run of the same merge may have decided them.
    """
    left_out = {
        decision.attempt.job_id
        for decision in decisions
        if decision.summary.get("outside", 0) == decision.summary.get("records")
    }
    return [key for job_id, key in pictures.items() if job_id in left_out]
