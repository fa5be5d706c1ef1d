"""What is told of the runs of a project, beside what is told of every run."""

from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.pool import Connection
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.automation_payloads import ProjectRun
from runlane.jobs import RunVerb

_PROJECT: Final = """
SELECT p.id, p.name, h.workspace_id, h.hops
FROM job_histories h JOIN projects p ON p.id = h.project_id
WHERE h.id = $1
"""


async def tell_run(conn: Connection, run_id: UUID, verb: RunVerb, reason: str | None = None) -> None:
    """Tells that a run began or ended, in the transaction of that, if it is of a project.

    One that a person has cancelled has failed, as far as its project is concerned.
    """
    row = await conn.fetchrow(_PROJECT, run_id)
    if row is None:
        return
    leaves = EVENT_CATALOG.project.run
    leaf = {RunVerb.START: leaves.started, RunVerb.COMPLETE: leaves.completed}.get(verb, leaves.failed)
    told = envelope(
        leaf,
        ProjectRun(project_id=row["id"], name=row["name"], run_id=run_id, reason=reason),
        workspace_id=row["workspace_id"],
        subject=names.project_subject(row["id"]),
        ordinal=str(run_id),
        hops=row["hops"],
    )
    await outbox.insert(conn, [told])
