"""How long the histories of a run's workflows are, as Temporal says."""

from dataclasses import dataclass
from uuid import UUID

from temporalio.client import Client

from runlane import names
from runlane.db.pool import Pool


@dataclass(frozen=True, slots=True)
class History:
    """One execution."""

    workflow_id: str
    events: int
    size_bytes: int


async def histories_of(client: Client, pool: Pool, run_id: UUID) -> list[History]:
    """The run's own workflow first, then its shards in the order in which they were opened."""
    rows = await pool.fetch("SELECT workflow_id FROM run_shards WHERE run_id = $1 ORDER BY number", run_id)
    ids = [names.run_workflow_id(run_id), *(row["workflow_id"] for row in rows)]
    return [await _history(client, workflow_id) for workflow_id in ids]


async def _history(client: Client, workflow_id: str) -> History:
    described = await client.get_workflow_handle(workflow_id).describe()
    info = described.raw_description.workflow_execution_info
    return History(workflow_id, info.history_length, info.history_size_bytes)
