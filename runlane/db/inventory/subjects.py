"""Whose inventory a merge changes: serialises merges per subject and says which hosts belong to it.

Every row of the inventory belongs to one target (assets) or one asset (all else). A merge takes the lock of
all its subjects first, in one order, so merges of the same asset follow each other and no two of them can
wait for each other, whatever rows they touch. The row itself is only pinned (`FOR KEY SHARE`): locking it
would cross the order in which a merge of names updates assets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from runlane.db.inventory.sightings import Ledger, MergeJob
from runlane.db.pool import Connection, Record
from runlane.tools import Category
from runlane.tools.hosts import normalise_host

_LOCK_CLASS: Final = 0x494E_5645
"""Advisory locks of two keys: this one, and 32 random bits of the subject's id."""

_LOCK: Final = "SELECT pg_advisory_xact_lock($1::int4, subject) FROM unnest($2::int4[]) AS subject"

_PIN_TARGETS: Final = """
SELECT t.workspace_id, t.id, t.kind, t.value
FROM targets t
JOIN unnest($1::uuid[], $2::uuid[]) AS s (workspace_id, id) ON t.workspace_id = s.workspace_id AND t.id = s.id
ORDER BY t.id
FOR KEY SHARE OF t
"""

_PIN_ASSETS: Final = """
SELECT a.workspace_id, a.id, a.value, a.addresses
FROM assets a
JOIN unnest($1::uuid[], $2::uuid[]) AS s (workspace_id, id) ON a.workspace_id = s.workspace_id AND a.id = s.id
ORDER BY a.id
FOR KEY SHARE OF a
"""

_GIVEN: Final = """
SELECT j.id, j.spec ->> 'address' AS address
FROM jobs j
JOIN unnest($1::uuid[], $2::uuid[]) AS s (workspace_id, id) ON j.workspace_id = s.workspace_id AND j.id = s.id
WHERE j.spec ->> 'address' IS NOT NULL
"""

_SERVICES: Final = """
SELECT s.asset_id, s.port, s.id
FROM asset_services s
JOIN unnest($1::uuid[], $2::uuid[]) AS a (workspace_id, id)
  ON s.workspace_id = a.workspace_id AND s.asset_id = a.id
WHERE s.protocol = 'tcp'
"""

Services: TypeAlias = Mapping[tuple[UUID, int], UUID]
"""Service of an asset by TCP port."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target that is there."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Asset:
    """An asset that is there."""

    value: str
    addresses: frozenset[str]
    """Where its name led when it was last resolved, or what it is itself. Empty: not resolved yet."""
    hosts: frozenset[str]
    """Its name and its addresses: a record about any other host is not about this asset."""


class HasHost(Protocol):
    """A record that says which host it is about."""

    @property
    def host(self) -> str:
        """Name or address, normalised."""


RecordT = TypeVar("RecordT", bound=HasHost)


class HasSubject(Protocol):
    """A job, before or after its result was read."""

    @property
    def workspace_id(self) -> UUID:
        """Its tenant."""

    @property
    def target_id(self) -> UUID | None:
        """What a job of names is about."""

    @property
    def asset_id(self) -> UUID | None:
        """What any other job is about."""


async def lock_subjects(conn: Connection, groups: Mapping[Category, Sequence[HasSubject]]) -> None:
    """Takes the locks of several merges of one transaction at once, until its end. Repeating it is free.

    A transaction with more than one merge must call it first with all of them: locks taken piece by piece
    have no common order.
    """
    ids = {subject_id for category, jobs in groups.items() for _, subject_id in _subjects(category, jobs)}
    keys = sorted({int.from_bytes(subject_id.bytes[-4:], signed=True) for subject_id in ids})
    if keys:
        await conn.fetch(_LOCK, _LOCK_CLASS, keys)


async def pin_targets(conn: Connection, jobs: Sequence[MergeJob]) -> dict[UUID, Target]:
    """The targets of the jobs that still exist; they cannot be deleted before this transaction ends."""
    keys = sorted(_subjects(Category.SUBDOMAINS, jobs))
    rows = await conn.fetch(_PIN_TARGETS, [key[0] for key in keys], [key[1] for key in keys])
    return {row["id"]: Target(row["kind"], row["value"]) for row in rows}


async def pin_assets(conn: Connection, jobs: Sequence[MergeJob]) -> dict[UUID, Asset]:
    """The assets of the jobs that still exist; they cannot be deleted before this transaction ends."""
    keys = sorted(_subjects(Category.PORTS_SCANNER, jobs))
    rows = await conn.fetch(_PIN_ASSETS, [key[0] for key in keys], [key[1] for key in keys])
    return {row["id"]: _asset(row) for row in rows}


def _asset(row: Record) -> Asset:
    addresses = frozenset(normalise_host(str(address)) for address in row["addresses"])
    return Asset(row["value"], addresses, addresses | {row["value"]})


async def given_addresses(conn: Connection, jobs: Sequence[MergeJob]) -> dict[UUID, str]:
    """The addresses that jobs were given to look at, by job; the name may lead elsewhere by now."""
    keys = [(job.workspace_id, job.job_id) for job in jobs]
    rows = await conn.fetch(_GIVEN, [key[0] for key in keys], [key[1] for key in keys])
    return {row["id"]: normalise_host(row["address"]) for row in rows}


def owned(
    chunk: Iterable[tuple[MergeJob, RecordT]], assets: Mapping[UUID, Asset], ledger: Ledger
) -> Iterator[tuple[UUID, MergeJob, RecordT]]:
    """Records about a host of their job's own asset, with that asset; the others are counted as left out."""
    for job, record in chunk:
        asset = assets.get(job.asset_id) if job.asset_id is not None else None
        if job.asset_id is not None and asset is not None and record.host in asset.hosts:
            yield job.asset_id, job, record
        else:
            ledger.left_out(job)


async def find_services(conn: Connection, jobs: Sequence[MergeJob]) -> Services:
    """The TCP services of the jobs' assets, closed ones too."""
    keys = sorted(_subjects(Category.PORTS_SCANNER, jobs))
    rows = await conn.fetch(_SERVICES, [key[0] for key in keys], [key[1] for key in keys])
    return {(row["asset_id"], row["port"]): row["id"] for row in rows}


def _subjects(category: Category, jobs: Iterable[HasSubject]) -> set[tuple[UUID, UUID]]:
    found: set[tuple[UUID, UUID]] = set()
    for job in jobs:
        subject_id = job.target_id if category is Category.SUBDOMAINS else job.asset_id
        if subject_id is not None:
            found.add((job.workspace_id, subject_id))
    return found
