"""What the gateway has to know of scan workers, in one statement for all that it serves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane.db import workers
from runlane.db.pool import Connection, Record
from runlane.db.workers import Worker, WorkerStatus

SILENT_S: Final = 15.0
"""A worker that beat the API three times too few is frozen or cut off: its connections may still stand."""

_PRESENT = (WorkerStatus.ONLINE, WorkerStatus.DRAINING)

_LOOK = """
SELECT w.*, CASE WHEN w.previous_until > clock_timestamp() THEN w.previous_digest END AS old_digest,
  w.stream_seen_at IS NOT NULL AND w.status = ANY($2) AND w.drained_at IS NULL
            AND w.beat_at > clock_timestamp() - make_interval(secs => $3) AS is_present
FROM workers w
WHERE w.id = ANY($1) AND w.deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker's row, as far as its calls depend on it."""

    worker: Worker
    digests: tuple[bytes, ...] = field(repr=False)
    """Of the tokens that are good: the current one, while it is being replaced also the next or the last."""
    is_present: bool
    """Its control stream is open, it beats, and nobody has drained it: what it is given it will work on."""

    @property
    def is_revoked(self) -> bool:
        """Whether its credential is good for nothing any more."""
        return self.worker.status is WorkerStatus.REVOKED


async def look(conn: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, Standing]:
    """The standing of these workers; one that was removed, or never was, is left out."""
    rows = await conn.fetch(_LOOK, list(worker_ids), list(_PRESENT), SILENT_S)
    return {row["id"]: Standing(workers.read_row(row), _digests(row), row["is_present"]) for row in rows}


def _digests(row: Record) -> tuple[bytes, ...]:
    return tuple(filter(None, (row["token_digest"], row["next_digest"], row["old_digest"])))
