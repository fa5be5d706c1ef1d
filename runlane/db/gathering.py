"""Gathering: events that start runs of saved definitions are noted, in the transaction of the event.

What is noted are rows: an event waits for nobody, and nobody for it. `runlane.db.triggers` takes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.events import Envelope
from runlane.triggers import EVENTS

MAX_HOPS: Final = 3
"""A run that events of a run started, and so on: not further than this. Source: the constraint of `hops`."""

TOO_FAR: Final = MAX_HOPS + 1
"""The distance of what is too far from a person: it starts nothing, and an event says so."""

ON: Final = "jsonb_array_elements(d.body -> 'on') WITH ORDINALITY AS o (entry, rule)"
"""SQL: the entries of a definition `d`, each with its number."""
EVENT: Final = "coalesce(o.entry ->> 'event', o.entry #>> '{}')"
"""SQL: the event of an entry `o.entry` of a definition's `on`."""


def fits(key: str, value: str) -> str:
    """SQL: an entry has no such filter, or the filter has this value (an expression)."""
    return f"(NOT o.entry ? '{key}' OR o.entry -> '{key}' ? {value})"


_NAMED: Final = f"""
SELECT DISTINCT {EVENT} AS event FROM workflow_definitions d CROSS JOIN LATERAL {ON}
WHERE d.workspace_id = $1 AND d.deleted_at IS NULL AND d.body ? 'on'
"""

_GATHER: Final = f"""
INSERT INTO gathered_targets (workspace_id, definition_id, hops, event, rule, run_id, target_id)
SELECT DISTINCT d.workspace_id, d.id, least(coalesce(h.hops, $3::int) + 1, {TOO_FAR}), e.event, o.rule, h.id,
       t.id
FROM unnest($4::text[], $5::uuid[], $6::uuid[], $7::uuid[], $8::text[])
  AS e (event, target_id, asset_id, service_id, severity)
LEFT JOIN asset_services s ON s.workspace_id = $1 AND s.id = e.service_id
LEFT JOIN assets a ON a.workspace_id = $1 AND a.id = coalesce(e.asset_id, s.asset_id)
JOIN targets t ON t.workspace_id = $1 AND t.id = coalesce(e.target_id, a.target_id) AND t.deleted_at IS NULL
LEFT JOIN job_histories h ON h.workspace_id = $1 AND h.id = $2
JOIN workflow_definitions d ON d.workspace_id = $1 AND d.deleted_at IS NULL AND d.body ? 'on'
CROSS JOIN LATERAL {ON}
WHERE {EVENT} = e.event AND {fits("tools", "$9::text")} AND {fits("severity", "e.severity")}
  AND NOT o.entry ? 'projects'
"""

_GATHER_RUN: Final = f"""
INSERT INTO gathered_targets (workspace_id, definition_id, hops, event, rule, run_id, target_id)
SELECT d.workspace_id, d.id, least(h.hops + 1, {TOO_FAR}), $2, o.rule, h.id, t.id
FROM job_histories h
JOIN workflow_definitions d ON d.workspace_id = h.workspace_id AND d.deleted_at IS NULL AND d.body ? 'on'
CROSS JOIN LATERAL {ON}
JOIN run_targets r ON r.run_id = h.id
JOIN targets t ON t.id = r.target_id AND t.deleted_at IS NULL
WHERE h.id = $1 AND {EVENT} = $2 AND {fits("definitions", "(h.definition ->> 'name')")}
"""


@dataclass(frozen=True, slots=True)
class Finder:
    """The run, and the tool, whose results events come from."""

    workspace_id: UUID
    run_id: UUID
    tool_id: str | None = None


async def gather(
    conn: Connection, workspace_id: UUID, event: str, target_ids: Sequence[UUID], *, hops: int = 0
) -> None:
    """Notes that an event about targets is to start runs, in the transaction of the event."""
    if target_ids:
        nothing = [None] * len(target_ids)
        about = ([event] * len(target_ids), list(target_ids), nothing, nothing, nothing)
        await conn.execute(_GATHER, workspace_id, None, hops, *about, None)


async def gather_found(conn: Connection, finder: Finder, envelopes: Sequence[Envelope]) -> None:
    """Notes that what a run has found is to start runs, in the transaction of these events."""
    found = [each for each in envelopes if each.type in EVENTS]
    if not found:
        return
    named = {row["event"] for row in await conn.fetch(_NAMED, finder.workspace_id)}
    if wanted := [each for each in found if each.type in named]:
        about = zip(*((each.type, *_about(each.data)) for each in wanted), strict=True)
        await conn.execute(_GATHER, finder.workspace_id, finder.run_id, 0, *map(list, about), finder.tool_id)


async def gather_run(conn: Connection, run_id: UUID, event: str) -> None:
    """Notes that the end of a run is to start runs on its targets, in the transaction of that end."""
    await conn.execute(_GATHER_RUN, run_id, event)


def _about(data: Mapping[str, object]) -> tuple[object, ...]:
    """What an event is about: its target, asset or service, and how grave it is."""
    ids = (data.get(name) for name in ("target_id", "asset_id", "service_id"))
    severity = data.get("severity")
    return (*(UUID(str(each)) if each else None for each in ids), str(severity) if severity else None)
