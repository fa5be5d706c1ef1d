"""Memory of the result worker while it merges one result of 300,000 records, category by category.

The result lies in the bucket as a scan worker leaves it, staged for a job in progress; the run's workflow
adopts it and has it merged.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final
from uuid import UUID, uuid4

import orjson

from benchmarks import memory
from runlane import names
from runlane.cli.platform import Platform
from runlane.db.claims import ClaimedJob, ClaimRequest, claim
from runlane.db.dispatch import NextBatches, next_batches
from runlane.db.inventory import ensure_primary_assets
from runlane.db.pool import Connection, Pool
from runlane.db.runs import Owner, load
from runlane.db.staging import Delivery, ObjectRef, StagedMember, stage
from runlane.db.starting import StartRun, start_run
from runlane.definitions import parse_definition
from runlane.jobs import Outcome
from runlane.storage import Storage, StorageConfig, object_key
from runlane.tools import Category

RECORDS: Final = 300_000
LONGEST_S: Final = 3_600
PROCESS: Final = "results"
HOST: Final = "big.lab.test"

_OWNER: Final = Owner("bench", datetime(2026, 1, 1, tzinfo=UTC))
_PORTS: Final = 60_000

_WORKER: Final = """
INSERT INTO workers (scope, workspace_id, name, token_digest, incarnation, status, toolsets, beat_at,
                     stream_seen_at)
VALUES ('workspace', $1, 'merging', $2, $3, 'online', '{probe}', clock_timestamp(), clock_timestamp())
RETURNING id
"""

_OPEN: Final = "SELECT closed_at IS NULL FROM job_histories WHERE id = $1"

_BACK: Final = "UPDATE workers SET status = 'online' WHERE id = $1"

_FORGET: Final = """
UPDATE targets SET deleted_at = clock_timestamp()
WHERE workspace_id = $1 AND value = $2 AND deleted_at IS NULL
"""

_TARGET: Final = "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, 'domain', $2) RETURNING id"

_SERVICE: Final = """
INSERT INTO asset_services (workspace_id, asset_id, port, protocol, scheme, url, web_seen_at, first_seen,
                            last_seen)
SELECT workspace_id, id, 80, 'tcp', 'http', 'http://' || value || '/', clock_timestamp(), clock_timestamp(),
       clock_timestamp()
FROM assets WHERE target_id = $1
"""


def _port(number: int) -> dict[str, object]:
    address, port = f"192.0.2.{number // _PORTS}", 1 + number % _PORTS
    return {"port": port, "protocol": "tcp", "address": address, "banner": f"banner {number}", "tls": False}


def _name(number: int) -> dict[str, object]:
    return {"name": f"host-{number}.{HOST}", "records": {"A": [f"192.0.2.{number % 250}"]}}


def _answer(number: int) -> dict[str, object]:
    technologies = [{"name": "nginx", "version": "1.26"}, {"name": f"module-{number % 9}", "version": None}]
    url = f"http://{HOST}:{1 + number % _PORTS}/"
    return {
        "url": url,
        "status": 200,
        "title": f"Page {number}",
        "server": "nginx",
        "technologies": technologies,
    }


def _url(number: int) -> dict[str, object]:
    url = f"http://{HOST}/{'p' * 40}/{number}"
    return {"url": url, "status": 200, "content_type": "text/html", "depth": number % 5, "source": "link"}


def _finding(number: int) -> dict[str, object]:
    url = f"http://{HOST}/{number}"
    return {"check": "exposed-git", "name": "n" * 20, "severity": "low", "url": url, "evidence": "e" * 60}


@dataclass(frozen=True, slots=True)
class _Kind:
    tool: str
    record: Callable[[int], dict[str, object]]


_KINDS: Final[Mapping[Category, _Kind]] = MappingProxyType(
    {
        Category.SUBDOMAINS: _Kind("dnsprobe", _name),
        Category.PORTS_SCANNER: _Kind("portprobe", _port),
        Category.HTTP_PROBE: _Kind("webprobe", _answer),
        Category.URL_DISCOVERY: _Kind("webcrawl", _url),
        Category.VULNERABILITIES: _Kind("webcheck", _finding),
    }
)


@dataclass(frozen=True, slots=True)
class Merging:
    """One merge."""

    category: Category
    records: int
    body_mib: float
    growth_mib: float
    seconds: float


async def measure(platform: Platform, pool: Pool, records: int = RECORDS) -> list[Merging]:
    """Merges one result of so many records of each category."""
    worker = await pool.fetchval(_WORKER, platform.workspace_id, uuid4().bytes * 2, incarnation := uuid4())
    host = _Host(platform, pool, worker, incarnation)
    return [await host.merge(category, records) for category in _KINDS]


@dataclass(frozen=True, slots=True)
class _Host:
    """Stands for a scan worker that has found much."""

    platform: Platform
    pool: Pool
    worker_id: UUID
    incarnation: UUID

    async def merge(self, category: Category, records: int) -> Merging:
        memory.reset_peaks(self.platform.stack)
        idle = memory.peaks(self.platform.stack)[PROCESS]
        async with self.pool.acquire() as conn, conn.transaction():
            run_id, size = await self._stage(conn, category, records)
        clock = asyncio.get_running_loop().time
        began = clock()
        async with asyncio.timeout(LONGEST_S):
            while await self._is_open(run_id):  # noqa: ASYNC110  # other processes close it
                await asyncio.sleep(0.5)
        await self._check(run_id, records)
        grown = memory.peaks(self.platform.stack)[PROCESS] - idle
        return Merging(category, records, size / memory.MEBIBYTE, grown, clock() - began)

    async def _stage(self, conn: Connection, category: Category, records: int) -> tuple[UUID, int]:
        """Writes a run of one job with its result staged, in one transaction: nobody else meets it before."""
        workspace_id, kind = self.platform.workspace_id, _KINDS[category]
        await conn.execute(_FORGET, workspace_id, HOST)
        target_id = await conn.fetchval(_TARGET, workspace_id, HOST)
        await ensure_primary_assets(conn, workspace_id, [target_id])
        await conn.execute(_SERVICE, target_id)
        definition = parse_definition({"name": "merging", "jobs": {"only": {"run": kind.tool}}})
        started = await start_run(conn, StartRun(workspace_id, definition, [target_id], "merging"))
        await load(conn, started.run_id, _OWNER)
        call = NextBatches(
            run_id=started.run_id,
            workspace_id=workspace_id,
            workflow_id=names.run_workflow_id(started.run_id),
            workflow_run_id=_OWNER.workflow_run_id,
            owner=_OWNER.workflow_run_id,
            call_number=int(target_id) % 2**31,
            rooms={"only": 1},
        )
        (dispatch,) = (await next_batches(conn, call)).dispatches
        await conn.execute(_BACK, self.worker_id)
        request = ClaimRequest(dispatch.dispatch_id, "bench", self.worker_id, self.incarnation, 1)
        (job,) = (await claim(conn, request)).jobs
        ref = await self._upload(dispatch.dispatch_id, job, kind, records)
        member = StagedMember(
            job.job_id, job.attempt, Outcome.COMPLETED, None, complete=False, reachable=True, coverage={}
        )
        delivery = Delivery(self.worker_id, self.incarnation, dispatch.dispatch_id, [member], object_ref=ref)
        await stage(conn, delivery)
        return started.run_id, ref.size_bytes

    async def _upload(self, dispatch_id: UUID, job: ClaimedJob, kind: _Kind, records: int) -> ObjectRef:
        head = b'{"job":"%b","attempt":%d,"records":[' % (str(job.job_id).encode(), job.attempt)
        body = head + b",".join(_lines(kind, records)) + b"]}\n"
        key = object_key(self.platform.workspace_id, dispatch_id)
        await Storage(StorageConfig(**self.platform.settings.bucket)).put(key, body)
        return ObjectRef(key, len(body), hashlib.sha256(body).digest())

    async def _is_open(self, run_id: UUID) -> bool:
        return bool(await self.pool.fetchval(_OPEN, run_id))

    async def _check(self, run_id: UUID, records: int) -> None:
        said = await self.pool.fetchval(
            """SELECT (a.summary ->> 'records')::int - coalesce((a.summary ->> 'outside')::int, 0)
               FROM jobs j JOIN job_attempts a ON a.job_id = j.id WHERE j.run_id = $1""",
            run_id,
        )
        if said != records:
            raise RuntimeError(f"{said} of {records} records were merged")


def _lines(kind: _Kind, records: int) -> Iterator[bytes]:
    return (orjson.dumps(kind.record(number)) for number in range(records))
