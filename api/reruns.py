"""A re-run as an answer: given once per Idempotency-Key, with the run that is to be started now."""

from collections.abc import Awaitable, Callable

from api.action_schemas import Rerun
from runlane.db import idempotency, reruns
from runlane.db.idempotency import Answer, IdempotentRequest
from runlane.db.pool import Connection
from workflows.starting import RunToStart


async def answer_rerun(
    conn: Connection, request: IdempotentRequest | None, act: Callable[[], Awaitable[reruns.Rerun]]
) -> tuple[Rerun, RunToStart | None]:
    """Re-runs, or repeats the answer of the same request; the run is one that nobody has started yet.

    Raises:
        InFlight, Invalid: as `runlane.db.idempotency.begin`.
    """
    to_start: RunToStart | None = None

    async def rerun() -> Answer:
        nonlocal to_start
        made = await act()
        if (started := made.started) is not None:
            to_start = RunToStart(made.run_id, started.workspace_id, started.name, started.kind)
        answer = Rerun(run_id=made.run_id, job_id=made.job_id, changed=made.is_new)
        return Answer(202, answer.model_dump(mode="json"))

    answer = await idempotency.once(conn, request, rerun)
    return Rerun.model_validate(answer.response), to_start
