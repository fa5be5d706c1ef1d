"""Runs that events start: all saved definitions of the workspace that name the event, and whose filter fits.

Events are gathered for a moment (`runlane.db.gathering`), so that an import of many targets is one run of
each definition and not thousands. A command for each definition, made by the relay, is due later and takes
what was gathered with the start; a run that has no room among the open runs of its workspace waits there and
is tried again.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.commands import CommandKind
from runlane.db.definitions import read_definition
from runlane.db.gathering import EVENT, TOO_FAR
from runlane.db.pool import Connection, Record
from runlane.db.selections import Source, in_group
from runlane.db.starting import NO_TARGET, StartRun, start_run
from runlane.errors import Refused
from runlane.events import EVENT_CATALOG, envelope
from runlane.events.payloads import TriggerStopped

GATHER_S: Final = 30
"""From the first event to the run: what comes meanwhile is in the same run."""

HOP_LIMIT: Final = "hop_limit"
"""Reason of a trigger that was stopped because its run would be too far from a person."""

_Which: TypeAlias = tuple[UUID, int, UUID | None]
"""What was gathered: for which definition, how far from a person, for which project."""

# One open command for each definition and distance: `request_id` is free again once it is done.
_CALL: Final = f"""
INSERT INTO commands (workspace_id, kind, workflow_id, payload, request_id, due_at)
SELECT d.workspace_id, '{CommandKind.TRIGGER}', '{names.TRIGGER_PREFIX}' || d.id,
       jsonb_build_object('definition', d.id, 'hops', n.hops),
       '{names.TRIGGER_PREFIX}' || d.id || '/' || n.hops,
       (SELECT min(g.gathered_at) FROM gathered_targets g WHERE g.definition_id = d.id AND g.hops = n.hops
          AND g.project_id IS NULL)
         + interval '{GATHER_S} seconds'
FROM workflow_definitions d CROSS JOIN generate_series(1, {TOO_FAR}) AS n (hops)
WHERE d.body ? 'on'
  AND EXISTS (SELECT FROM gathered_targets g
              WHERE g.definition_id = d.id AND g.hops = n.hops AND g.project_id IS NULL)
  AND NOT EXISTS (SELECT FROM commands c
                  WHERE c.request_id = '{names.TRIGGER_PREFIX}' || d.id || '/' || n.hops)
ON CONFLICT (request_id) DO NOTHING
"""

_OF_PROJECT: Final = f"'{names.TRIGGER_PREFIX}' || g.definition_id || '/' || g.hops || '/' || g.project_id"

# The same, for each project too: the run is one of that project.
CALL_PROJECTS: Final = f"""
INSERT INTO commands (workspace_id, kind, workflow_id, payload, request_id, due_at)
SELECT d.workspace_id, '{CommandKind.TRIGGER}', '{names.TRIGGER_PREFIX}' || d.id,
       jsonb_build_object('definition', d.id, 'hops', g.hops, 'project', g.project_id),
       {_OF_PROJECT},
       (SELECT min(o.gathered_at) FROM gathered_targets o
        WHERE o.definition_id = g.definition_id AND o.hops = g.hops AND o.project_id = g.project_id)
         + interval '{GATHER_S} seconds'
FROM (SELECT DISTINCT definition_id, hops, project_id FROM gathered_targets WHERE project_id IS NOT NULL) g
JOIN workflow_definitions d ON d.id = g.definition_id
WHERE NOT EXISTS (SELECT FROM commands c WHERE c.request_id = {_OF_PROJECT})
ON CONFLICT (request_id) DO NOTHING
"""

_DEFINITION: Final = """
SELECT id, workspace_id, name, body, version FROM workflow_definitions WHERE id = $1 AND deleted_at IS NULL
"""

_CAUSE: Final = """
SELECT event FROM gathered_targets
WHERE definition_id = $1 AND hops = $2 AND project_id IS NOT DISTINCT FROM $3::uuid ORDER BY id LIMIT 1
"""

_TAKE: Final = """
DELETE FROM gathered_targets
WHERE definition_id = {definition} AND hops = {hops} AND project_id IS NOT DISTINCT FROM {project}
RETURNING target_id, event, rule, run_id, project_id, workspace_id
"""

_DROP: Final = _TAKE.format(definition="$1", hops="$2", project="$3::uuid")

# By the entries of the definition as it is now: what was gathered for one that it had before does not fit.
_TAKEN: Final = f"""
SELECT DISTINCT t.id AS target_id FROM taken
JOIN targets t ON t.id = taken.target_id AND t.deleted_at IS NULL
JOIN workflow_definitions d ON d.id = $3
CROSS JOIN LATERAL (SELECT d.body -> 'on' -> (taken.rule - 1) AS entry) o
WHERE {EVENT} = taken.event
  AND (NOT o.entry ? 'tags' OR t.tags && ARRAY(SELECT jsonb_array_elements_text(o.entry -> 'tags')))
  AND (NOT o.entry ? 'groups' OR EXISTS (
    SELECT FROM target_groups named
    WHERE named.workspace_id = t.workspace_id AND o.entry -> 'groups' ? named.name
      AND {in_group("t", "named.id")}))
  AND (NOT o.entry ? 'projects' OR EXISTS (
    SELECT FROM projects p
    WHERE p.id = taken.project_id AND p.deleted_at IS NULL AND o.entry -> 'projects' ? p.name))
"""


async def call_gathered(conn: Connection) -> None:
    """Writes the commands that will take what was gathered. Harmless to repeat.

    Indexes: `workflow_definitions_triggered`, `gathered_targets_of`, `gathered_targets_project`.
    """
    await conn.execute(_CALL)
    await conn.execute(CALL_PROJECTS)


async def start(conn: Connection, gathered: Mapping[str, object]) -> UUID | None:
    """Starts the run of what was gathered, in one transaction of the caller, and takes it.

    None: nothing is left of it, or a run would be too far from a person: then an event says so.

    Raises:
        Conflict: `run.too_many_open`, there is no room now.
        Refused: the run can never be started; `give_up` is next.
    """
    which = _which(gathered)
    definition = await conn.fetchrow(_DEFINITION, which[0])
    event = await conn.fetchval(_CAUSE, *which)
    if definition is None or event is None:
        await conn.execute(_DROP, *which)
        return None
    if which[1] == TOO_FAR:
        await _stop(conn, definition, which, HOP_LIMIT)
        return None
    graph = await read_definition(conn, definition["workspace_id"], definition["body"])
    request = StartRun(
        workspace_id=definition["workspace_id"],
        definition=graph,
        target_ids=(),
        name=graph.name,
        created_by=f"event {event}",
        trigger="event",
        definition_id=definition["id"],
        definition_version=definition["version"],
        project_id=which[2],
        hops=which[1],
        source=Source(_TAKEN, which, taken=_TAKE.format(definition="$3", hops="$4", project="$5::uuid")),
    )
    return (await start_run(conn, request)).run_id


async def give_up(conn: Connection, gathered: Mapping[str, object], error: Refused) -> None:
    """Drops what was gathered for a run that was refused for good, and says so, unless no target was left."""
    which = _which(gathered)
    definition = await conn.fetchrow(_DEFINITION, which[0])
    if definition is None or error.code == NO_TARGET:
        await conn.execute(_DROP, *which)
    else:
        await _stop(conn, definition, which, error.code)


def _which(gathered: Mapping[str, object]) -> _Which:
    project = gathered.get("project")
    return (
        UUID(str(gathered["definition"])),
        int(str(gathered["hops"])),
        UUID(str(project)) if project else None,
    )


async def _stop(conn: Connection, definition: Record, which: _Which, reason: str) -> None:
    rows = await conn.fetch(_DROP, *which)
    if not rows:
        return
    payload = TriggerStopped(
        definition_id=definition["id"],
        name=definition["name"],
        cause=rows[0]["event"],
        reason=reason,
        targets=len({row["target_id"] for row in rows}),
        run_id=rows[0]["run_id"],
    )
    moment = await conn.fetchval("SELECT clock_timestamp()")
    stopped = envelope(
        EVENT_CATALOG.workflow.trigger.stopped,
        payload,
        workspace_id=definition["workspace_id"],
        subject=names.definition_subject(definition["id"]),
        ordinal=moment.isoformat(),
    )
    await outbox.insert(conn, [stopped])
