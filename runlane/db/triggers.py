"""Runs that events start: all saved definitions of the workspace that name the event.

Events are gathered for a moment, so that an import of many targets is one run of each definition and not
thousands. What is gathered is a command that is due later, one for each definition; a run that has no room
among the open runs of its workspace waits there and is tried again.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db.commands import CommandKind
from runlane.db.definitions import read_definition
from runlane.db.pool import Connection
from runlane.db.starting import StartRun, start_run

GATHER_S: Final = 30
"""From the first event to the run: what comes meanwhile is in the same run."""

MOST_TARGETS: Final = 1_000
"""Targets of one triggered run; more make more runs."""

MAX_HOPS: Final = 3
"""A run that events of a run started, and so on: not further than this. Source: the constraint of `hops`."""

# One open command for each definition: `request_id` is free again once it is done.
_GATHER: Final = f"""
INSERT INTO commands (workspace_id, kind, workflow_id, payload, request_id, due_at)
SELECT $1, '{CommandKind.TRIGGER}', '{names.TRIGGER_PREFIX}' || d.id,
       jsonb_build_object('definition', d.id, 'event', $2::text, 'hops', $4::int,
                          'targets', to_jsonb($3::uuid[])),
       '{names.TRIGGER_PREFIX}' || d.id || '/' || $4::int, clock_timestamp() + interval '{GATHER_S} seconds'
FROM workflow_definitions d
WHERE d.workspace_id = $1 AND d.deleted_at IS NULL AND d.body -> 'on' ? $2
ORDER BY d.id
ON CONFLICT (request_id) DO UPDATE SET
  payload = jsonb_set(
    commands.payload, '{{targets}}', (commands.payload -> 'targets') || to_jsonb($3::uuid[]))
"""

_DEFINITION: Final = """
SELECT id, workspace_id, body, version FROM workflow_definitions WHERE id = $1 AND deleted_at IS NULL
"""

_TARGETS: Final = """
SELECT id FROM targets WHERE workspace_id = $1 AND id = ANY($2::uuid[]) AND deleted_at IS NULL ORDER BY id
"""


async def gather(
    conn: Connection, workspace_id: UUID, event: str, target_ids: Sequence[UUID], *, hops: int = 0
) -> None:
    """Notes that an event about targets is to start runs, in the transaction of the event.

    `hops`: those of the run that brought it about; an event too far from a person starts nothing.
    """
    if hops < MAX_HOPS and target_ids:
        await conn.execute(_GATHER, workspace_id, event, target_ids, hops + 1)


async def start(conn: Connection, gathered: Mapping[str, object]) -> list[UUID]:
    """Starts the runs of what was gathered, in one transaction of the caller; none if nothing is left of it.

    Raises:
        Conflict: `run.too_many_open`, there is no room now.
        Refused: the run can never be started.
    """
    definition = await conn.fetchrow(_DEFINITION, UUID(str(gathered["definition"])))
    if definition is None:
        return []
    workspace_id, wanted = definition["workspace_id"], gathered["targets"]
    targets = [row["id"] for row in await conn.fetch(_TARGETS, workspace_id, wanted)]
    graph = await read_definition(conn, workspace_id, definition["body"])
    started = []
    for at in range(0, len(targets), MOST_TARGETS):
        request = StartRun(
            workspace_id=workspace_id,
            definition=graph,
            target_ids=targets[at : at + MOST_TARGETS],
            name=graph.name,
            created_by=f"event {gathered['event']}",
            trigger="event",
            definition_id=definition["id"],
            definition_version=definition["version"],
            hops=int(str(gathered["hops"])),
        )
        started.append((await start_run(conn, request)).run_id)
    return started
