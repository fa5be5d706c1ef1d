"""Scan workers: enrolment, incarnations, presence. A row is the truth of who is there.

One row is one host; `incarnation` is one life of its process. A newcomer with a host's token is refused while
the old life shows itself; every later call names its incarnation, so a life that was replaced cannot act.
Functions never commit: the caller's transaction decides. Jobs are not touched here: the workflows that
dispatched them are nudged, and release them. What control streams say of presence is in
`runlane.db.presence`.
"""

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias
from uuid import UUID

from runlane import names
from runlane.db import classes, nudges, outbox, polls
from runlane.db.guards import IN_PROGRESS
from runlane.db.keys import digest
from runlane.db.pool import Connection, Record
from runlane.db.publishing import publish_quietly
from runlane.errors import Conflict, Unauthenticated
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.catalog import Leaf, PayloadT
from runlane.events.payloads import (
    WorkerJoined,
    WorkerLeft,
    WorkerNetworkConnected,
    WorkerRejected,
    WorkerTimedOut,
)

ALIVE_S: Final = 10.0
"""A life that was heard of within this keeps newcomers out."""

TOKEN_START: Final = "rlw_"  # noqa: S105  # the public part
"""How a worker token begins; API keys begin otherwise."""

Loss: TypeAlias = Literal["disconnected", "silent", "not_polling"]
"""Why a worker was taken off line."""

_TOKEN: Final = re.compile(rf"{TOKEN_START}([0-9a-f]{{32}})_[A-Za-z0-9_-]{{43}}\Z")


class Presented(StrEnum):
    """Which of a worker's tokens was presented; see `runlane.db.credentials`."""

    CURRENT = "current"
    NEXT = "next"  # issued and used for the first time
    PREVIOUS = "previous"  # replaced a moment ago


class WorkerStatus(StrEnum):
    """Presence of a scan worker, as in `workers.status`."""

    OFFLINE = "offline"  # nobody sees its control stream, or it has left
    ONLINE = "online"
    DRAINING = "draining"  # takes no more jobs; set by its own heartbeat
    REVOKED = "revoked"  # set by a person; its token is good for nothing any more


@dataclass(frozen=True, slots=True)
class Worker:
    """A scan worker as its row has it now."""

    worker_id: UUID
    workspace_id: UUID | None
    """None for a worker that all willing workspaces share."""
    network_id: UUID | None
    name: str
    toolsets: Sequence[str]
    slots: Mapping[str, int]
    incarnation: UUID | None
    status: WorkerStatus
    presented: Presented = Presented.CURRENT

    def require_incarnation(self) -> UUID:
        """Its life of the moment.

        Raises:
            Conflict: `worker.stale_incarnation`, it has left and has none.
        """
        if self.incarnation is None:
            raise stale_incarnation()
        return self.incarnation

    @property
    def queues(self) -> dict[str, str]:
        """Task queue of each tool set: the classes of jobs that this worker may serve."""
        if self.workspace_id is None:
            return {toolset: names.shared_scan_queue(toolset) for toolset in self.toolsets}
        return {
            toolset: names.scan_queue(self.workspace_id, toolset, self.network_id)
            for toolset in self.toolsets
        }

    @property
    def subject(self) -> str:
        """CloudEvents subject of the worker."""
        return names.worker_subject(self.worker_id)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a new worker belongs, as the key says that it is enrolled with."""

    workspace_id: UUID | None
    """None: all willing workspaces share it."""
    network_id: UUID | None = None
    """The internal network that it is bound to, for good."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a joining process says of itself."""

    name: str
    toolsets: Sequence[str]
    slots: Mapping[str, int]
    version: str
    protocol: int
    incarnation: UUID
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of the tools that are foreign programs."""


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The dispatch that a worker speaks of."""

    dispatch_id: UUID
    workspace_id: UUID
    task_queue: str
    category: str


_LAST_JOIN = "SELECT max(joined_at) FROM workers WHERE workspace_id = $1"

_FIND = """
SELECT id, workspace_id, network_id, name, toolsets, slots, incarnation, status, token_digest, next_digest,
  CASE WHEN previous_until > clock_timestamp() THEN previous_digest END AS previous_digest
FROM workers
WHERE id = $1 AND deleted_at IS NULL
"""

_FIND_DISPATCH = """
SELECT d.id, d.workspace_id, d.task_queue, t.category
FROM dispatches d
JOIN run_steps s ON s.run_id = d.run_id AND s.step_id = d.step_id
JOIN tools t ON t.id = s.tool_id
WHERE d.id = $1
"""

_ENROL = """
INSERT INTO workers (id, scope, workspace_id, name, token_digest, incarnation, status, toolsets, slots,
                     version, protocol, tools, beat_at, network_id)
VALUES ($1, $2, $3, $4, $5, $6, 'online', $7, $8, $9, $10, $11, clock_timestamp(), $12)
RETURNING *, (SELECT n.name FROM internal_networks n WHERE n.id = $12) AS network
"""

_REJOIN = """
UPDATE workers
SET incarnation = $2, status = CASE WHEN drained_at IS NULL THEN 'online' ELSE 'draining' END,
    name = $4, toolsets = $5, slots = $6, version = $7, protocol = $8,
    tools = $9, joined_at = clock_timestamp(), left_at = NULL, beat_at = clock_timestamp(),
    stream_seen_at = NULL, stream_replica = NULL, not_polling = '{}', not_polling_since = NULL
WHERE id = $1 AND deleted_at IS NULL AND status <> 'revoked'
  AND (incarnation IS NULL OR incarnation = $2 OR status = 'offline' OR stream_seen_at IS NULL
       OR greatest(stream_seen_at, beat_at) < clock_timestamp() - make_interval(secs => $3))
RETURNING *
"""

_BEAT = """
UPDATE workers
SET beat_at = clock_timestamp(), status = CASE WHEN $3 AND status = 'online' THEN 'draining' ELSE status END
WHERE id = $1 AND incarnation = $2 AND status <> 'revoked'
"""

_NOT_ITS = f"""
SELECT r.job_id, r.attempt
FROM unnest($2::uuid[], $3::int[]) AS r (job_id, attempt)
LEFT JOIN jobs j
  ON j.id = r.job_id AND j.attempt = r.attempt AND j.worker_id = $1 AND j.status = {IN_PROGRESS}
WHERE j.id IS NULL
"""

_LEAVE = """
UPDATE workers SET status = 'offline', incarnation = NULL, stream_seen_at = NULL, stream_replica = NULL,
  left_at = clock_timestamp(), not_polling = '{}', not_polling_since = NULL
WHERE id = $1 AND incarnation = $2 AND status <> 'revoked'
RETURNING *
"""


async def last_join(conn: Connection, workspace_id: UUID) -> datetime | None:
    """When a worker of a workspace last began a life; None if none ever did."""
    joined_at: datetime | None = await conn.fetchval(_LAST_JOIN, workspace_id)
    return joined_at


async def authenticate(conn: Connection, presented: str, pepper: bytes) -> Worker:
    """Finds the owner of a worker token.

    Raises:
        Unauthenticated: `worker.token`, whatever is wrong with it; `worker.revoked`, it was good once.
    """
    row = await conn.fetchrow(_FIND, worker_id_in(presented))
    return _checked(row, presented, pepper)


async def find_dispatch(conn: Connection, dispatch_id: UUID) -> DispatchContext | None:
    """The dispatch that a worker speaks of; None if there is none, or its run was deleted."""
    row = await conn.fetchrow(_FIND_DISPATCH, dispatch_id)
    return None if row is None else DispatchContext(*row)


async def enrol(conn: Connection, home: Home, life: Life, pepper: bytes) -> tuple[Worker, str]:
    """Makes a worker and its token, which exists nowhere else. Where it belongs is no choice of the host.

    A repeated call makes another worker; the first one never shows itself and is offline by the next sweep.
    """
    worker_id: UUID = await conn.fetchval("SELECT uuidv7()")
    token = new_token(worker_id)
    (row,) = await conn.fetch(
        _ENROL,
        worker_id,
        "shared" if home.workspace_id is None else "workspace",
        home.workspace_id,
        life.name,
        digest(token, pepper),
        life.incarnation,
        list(life.toolsets),
        dict(life.slots),
        life.version,
        life.protocol,
        dict(life.tools),
        home.network_id,
    )
    worker = read_row(row)
    await _publish_joined(conn, worker)
    if home.network_id is not None:
        await _publish_connected(conn, worker, home.network_id, row["network"])
    return worker, token


async def rejoin(conn: Connection, worker: Worker, life: Life) -> Worker:
    """Begins a new life of a known worker; jobs of the old one are looked after. Idempotent per incarnation.

    Raises:
        Conflict: `worker.identity_conflict`, the old life was heard of a moment ago.
    """
    row = await conn.fetchrow(
        _REJOIN,
        worker.worker_id,
        life.incarnation,
        ALIVE_S,
        life.name,
        list(life.toolsets),
        dict(life.slots),
        life.version,
        life.protocol,
        dict(life.tools),
    )
    if row is None:
        detail = "another process with this worker's credential is alive"
        raise Conflict(detail, code=names.IDENTITY_CONFLICT_CODE)
    joined = read_row(row)
    if worker.incarnation != life.incarnation:
        await polls.forget(conn, worker.worker_id)
        await nudges.nudge_for_worker(conn, worker.worker_id)
        await _publish_joined(conn, joined)
    return joined


async def reject(conn: Connection, worker: Worker, incarnation: UUID, reason: str) -> None:
    """Publishes that a host with this worker's token was refused; once per incarnation of that host.

    Quietly: whoever is refused is to hear that, and not that its event could not be written.
    """
    payload = WorkerRejected(worker_id=worker.worker_id, reason=reason)
    await publish_quietly(conn, _event(worker, EVENT_CATALOG.worker.rejected, payload, str(incarnation)))


async def beat(
    conn: Connection, worker: Worker, running: Sequence[tuple[UUID, int]], *, is_draining: bool
) -> list[tuple[UUID, int]]:
    """Notes a heartbeat; returns those of the running jobs, with attempts, that are not this worker's."""
    await conn.execute(_BEAT, worker.worker_id, worker.incarnation, is_draining)
    if not running:
        return []
    ids, attempts = [job_id for job_id, _ in running], [attempt for _, attempt in running]
    rows = await conn.fetch(_NOT_ITS, worker.worker_id, ids, attempts)
    return [(row["job_id"], row["attempt"]) for row in rows]


async def leave(conn: Connection, worker: Worker) -> None:
    """Ends a life: the worker is offline at once.

    Workflows that wait for its answers are not nudged: it has answered for every batch, and a workflow that
    looks before it has read that would take for lost what was given back.
    """
    row = await conn.fetchrow(_LEAVE, worker.worker_id, worker.incarnation)
    if row is None:
        return
    payload = WorkerLeft(worker_id=worker.worker_id, name=worker.name)
    await outbox.insert(conn, _event(worker, EVENT_CATALOG.worker.left, payload, str(worker.incarnation)))
    await classes.call_stranded(conn, [worker.worker_id])


async def time_out(conn: Connection, row: Record, reason: Loss) -> None:
    """Has the jobs of a worker looked after that was taken off line; `row` is its row and `gone_at`."""
    worker = read_row(row)
    await nudges.nudge_for_worker(conn, worker.worker_id)
    payload = WorkerTimedOut(worker_id=worker.worker_id, name=worker.name, reason=reason)
    ordinal = f"{worker.incarnation}/{row['gone_at'].isoformat()}"
    await outbox.insert(conn, _event(worker, EVENT_CATALOG.worker.timed_out, payload, ordinal))


async def _publish_joined(conn: Connection, worker: Worker) -> None:
    payload = WorkerJoined(worker_id=worker.worker_id, name=worker.name, toolsets=tuple(worker.toolsets))
    await outbox.insert(conn, _event(worker, EVENT_CATALOG.worker.joined, payload, str(worker.incarnation)))


async def _publish_connected(conn: Connection, worker: Worker, network_id: UUID, network: str) -> None:
    payload = WorkerNetworkConnected(
        worker_id=worker.worker_id, name=worker.name, network_id=network_id, network=network
    )
    await outbox.insert(
        conn, _event(worker, EVENT_CATALOG.worker.network.connected, payload, str(network_id))
    )


def _event(worker: Worker, leaf: Leaf[PayloadT], payload: PayloadT, ordinal: str) -> list[Envelope]:
    """None of a shared worker: it has no workspace, and what belongs to none is not on the bus."""
    if worker.workspace_id is None:
        return []
    return [
        envelope(leaf, payload, workspace_id=worker.workspace_id, subject=worker.subject, ordinal=ordinal)
    ]


def stale_incarnation() -> Conflict:
    """What a process is told whose life as this worker is over."""
    return Conflict("this life of the worker is over", code="worker.stale_incarnation")


def new_token(worker_id: UUID) -> str:
    """A token of a worker; it exists nowhere else."""
    return f"{TOKEN_START}{worker_id.hex}_{secrets.token_urlsafe(32)}"


def worker_id_in(presented: str) -> UUID | None:
    """Whom a worker token claims to be of; None if it is none."""
    form = _TOKEN.match(presented)
    return UUID(form[1]) if form else None


def _checked(row: Record | None, presented: str, pepper: bytes) -> Worker:
    given = digest(presented, pepper)
    # Compared even when nothing was found: the time of the answer must not tell which workers exist.
    found = [kind for kind in Presented if hmac.compare_digest(given, _stored(row, kind))]
    if row is None or not found:
        raise Unauthenticated("the worker token is not valid", code=names.WORKER_TOKEN_CODE)
    if row["status"] == WorkerStatus.REVOKED:
        raise Unauthenticated("the worker was revoked", code="worker.revoked")
    return replace(read_row(row), presented=found[0])


def _stored(row: Record | None, kind: Presented) -> bytes:
    column = "token_digest" if kind is Presented.CURRENT else f"{kind}_digest"
    stored: bytes | None = row[column] if row is not None else None
    return stored or bytes(32)


def read_row(row: Record) -> Worker:
    """A worker from the columns of its row."""
    return Worker(
        worker_id=row["id"],
        workspace_id=row["workspace_id"],
        network_id=row["network_id"],
        name=row["name"],
        toolsets=row["toolsets"],
        slots=row["slots"],
        incarnation=row["incarnation"],
        status=WorkerStatus(row["status"]),
    )
