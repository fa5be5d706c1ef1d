"""Import of many targets at once: all of a file or, if a line is wrong, none of it."""

from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import gathering, outbox
from runlane.db.networks import reach_of
from runlane.db.pool import Connection
from runlane.events import EVENT_CATALOG, Actor, envelope
from runlane.events.payloads import TargetCreated
from runlane.tools.target_files import Fault, FileFormat, read_targets

# In one order, so that two imports of the same targets do not wait for each other.
_UPSERT: Final = """
INSERT INTO targets (workspace_id, kind, value, tags, network_id)
SELECT $1, u.kind, u.value, string_to_array(u.tags, ' '), $5
FROM unnest($2::text[], $3::text[], $4::text[]) AS u (kind, value, tags)
ORDER BY u.value
ON CONFLICT (workspace_id, value, network_id) WHERE deleted_at IS NULL DO UPDATE
SET tags = ARRAY(SELECT DISTINCT tag FROM unnest(targets.tags || excluded.tags) AS t (tag) ORDER BY tag)
WHERE NOT targets.tags @> excluded.tags
RETURNING id, kind, value, old.id IS NULL AS is_new
"""


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file of targets, all in the internal network of this name or id, or in none."""

    text: str
    format: FileFormat
    network: str | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. `known` were targets already, of which `tagged` got more tags."""

    added: int
    known: int
    tagged: int
    faults: Sequence[Fault]


async def import_targets(
    conn: Connection, workspace_id: UUID, given: GivenFile, actor: Actor | None = None
) -> Imported:
    """Adds the targets of a file in their one spelling, in the transaction of the caller. Repeatable.

    Raises:
        Invalid: `targets.too_many`.
        NotFound: `network.not_found`.
    """
    reach = await reach_of(conn, workspace_id, given.network)
    read = partial(read_targets, is_bound=reach.is_bound)
    file = await to_thread(read, given.text, given.format, reach.cidrs)  # others have their turn meanwhile
    if file.faults:
        return Imported(0, 0, 0, file.faults)
    rows = await conn.fetch(
        _UPSERT,
        workspace_id,
        [target.kind for target in file.targets],
        [target.value for target in file.targets],
        [" ".join(sorted(tags)) for tags in file.targets.values()],
        reach.network_id,
    )
    added = [row for row in rows if row["is_new"]]
    await outbox.insert(
        conn,
        [
            envelope(
                EVENT_CATALOG.target.created,
                TargetCreated(
                    target_id=row["id"], kind=row["kind"], value=row["value"], network_id=reach.network_id
                ),
                workspace_id=workspace_id,
                subject=names.target_subject(row["id"]),
                actor=actor,
            )
            for row in added
        ],
    )
    event = EVENT_CATALOG.target.created.name
    await gathering.gather(conn, workspace_id, event, [row["id"] for row in added])
    return Imported(len(added), len(file.targets) - len(added), len(rows) - len(added), ())
