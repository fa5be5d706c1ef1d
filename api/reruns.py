"""A re-run as an answer: given once per Idempotency-Key, and its run started at once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import BackgroundTasks, Depends, Response

from api.action_schemas import Rerun
from api.deps import Opened
from runlane.db import idempotency, reruns
from runlane.db.idempotency import Answer, IdempotentRequest
from runlane.db.pool import Connection
from workflows.starting import RunToStart


@dataclass(frozen=True, slots=True)
class Rerunner:
    """What an answer needs besides the rows; made for each request."""

    response: Response
    background: BackgroundTasks
    opened: Opened

    async def answer(
        self,
        conn: Connection,
        request: IdempotentRequest | None,
        act: Callable[[], Awaitable[reruns.Rerun]],
    ) -> Rerun:
        """Re-runs, or repeats the answer of the same request; `Location` is the run that does it.

        Raises:
            InFlight, Invalid: as `runlane.db.idempotency.begin`.
        """

        async def rerun() -> Answer:
            made = await act()
            if (started := made.started) is not None:
                to_start = RunToStart(made.run_id, started.workspace_id, started.name, started.kind)
                self.background.add_task(self.opened.starter.start_soon, to_start)  # runs after the commit
            answer = Rerun(run_id=made.run_id, job_id=made.job_id, changed=made.is_new)
            return Answer(202, answer.model_dump(mode="json"))

        answer = await idempotency.once(conn, request, rerun)
        made = Rerun.model_validate(answer.response)
        self.response.headers["Location"] = f"/v1/runs/{made.run_id}"
        return made


Reruns = Annotated[Rerunner, Depends()]
