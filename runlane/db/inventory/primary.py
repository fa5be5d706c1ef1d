"""Assets that a target has without any scan: its own name, or the addresses of its network."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from runlane.db.inventory.announcements import asset_discovered
from runlane.db.pool import Connection
from runlane.events import Envelope
from runlane.events.payloads import AssetDiscovered

_ENSURE: Final = """
WITH target AS (
  SELECT id, kind, value FROM targets
  WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND deleted_at IS NULL
), own AS (
  SELECT id AS target_id, value, true AS is_primary,
         CASE kind WHEN 'ip' THEN ARRAY[value::inet] ELSE '{}'::inet[] END AS addresses
  FROM target
  WHERE kind <> 'cidr'
  UNION ALL
  SELECT id, host(address), false, ARRAY[address]
  FROM (SELECT id, host(network(value::cidr))::inet + step AS address
        FROM target, generate_series(0, (1 << (CASE family(value::cidr) WHEN 4 THEN 32 ELSE 128 END
                                               - masklen(value::cidr))) - 1) AS step
        WHERE kind = 'cidr') AS inside
)
INSERT INTO assets (workspace_id, target_id, run_id, value, is_primary, addresses, first_seen, last_seen,
                    created_at)
SELECT $1, target_id, $3, value, is_primary, addresses, statement_timestamp(), statement_timestamp(),
       coalesce((SELECT h.created_at FROM job_histories h WHERE h.id = $3), clock_timestamp())
FROM own
WHERE NOT EXISTS (SELECT FROM assets a
                  WHERE a.workspace_id = $1 AND a.target_id = own.target_id AND a.value = own.value)
ORDER BY target_id, value
ON CONFLICT (workspace_id, target_id, value) DO NOTHING
RETURNING id, target_id, value
"""


async def ensure_primary_assets(
    conn: Connection, workspace_id: UUID, target_ids: Sequence[UUID], *, run_id: UUID | None = None
) -> list[Envelope]:
    """Makes the assets that targets have by themselves, so that a step over assets has subjects at once.

    A domain or address is its own primary asset; a network has one asset per address, none of them primary.
    They count as made when the run was: however late that is, they are in the scope of its steps. What is
    there stays as it is; works under row-level security too. The answer is one event per new asset,
    for the caller's outbox; none without a `run_id` to name as their cause.
    """
    rows = await conn.fetch(_ENSURE, workspace_id, list(target_ids), run_id)
    if run_id is None:
        return []
    return [
        asset_discovered(
            workspace_id,
            AssetDiscovered(
                asset_id=row["id"], target_id=row["target_id"], value=row["value"], run_id=run_id
            ),
        )
        for row in rows
    ]
