"""Rows that merge tests start from, and short ways to say what a job saw and when."""

import base64
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from runlane.db.inventory import MergeJob, MergeSummary, merge
from runlane.db.pool import Pool, Record
from runlane.events import Envelope
from runlane.tools import Category, parse_records
from runlane.tools import Record as ToolRecord

START = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
TOOL_OF = {
    Category.SUBDOMAINS: "dnsprobe",
    Category.PORTS_SCANNER: "portprobe",
    Category.HTTP_PROBE: "webprobe",
    Category.URL_DISCOVERY: "webcrawl",
    Category.VULNERABILITIES: "webcheck",
    Category.SCREENSHOT: "screenshot",
}


def at(minute: float) -> datetime:
    """A moment, in minutes after the start of the scene."""
    return START + timedelta(minutes=minute)


@dataclass(frozen=True, slots=True)
class Merged:
    """Outcome of a merge: a summary for each job, and the events of what is new."""

    summaries: dict[UUID, MergeSummary]
    envelopes: list[Envelope]


async def untold(envelopes: Sequence[Envelope]) -> None:
    """Announces nothing."""


@dataclass(slots=True)
class World:
    """One workspace with one run, one target and one asset of it."""

    pool: Pool
    workspace_id: UUID
    run_id: UUID
    target_id: UUID
    asset_id: UUID
    number: int = field(default=0)

    @classmethod
    async def make(cls, pool: Pool, domain: str = "lab.test", host: str = "app.lab.test") -> "World":
        """Writes a new workspace; `host` has the address 127.7.0.3."""
        workspace_id = await pool.fetchval("INSERT INTO workspaces (name) VALUES ('w') RETURNING id")
        world = cls(pool, workspace_id, uuid4(), uuid4(), uuid4())
        world.run_id = await world.add_run()
        world.target_id = await world.add_target("domain", domain)
        world.asset_id = await world.add_asset(host, "127.7.0.3")
        return world

    async def add_run(self) -> UUID:
        """One more run."""
        run_id: UUID = await self.pool.fetchval(
            "INSERT INTO job_histories (workspace_id, name, definition) VALUES ($1, 'r', '{}') RETURNING id",
            self.workspace_id,
        )
        return run_id

    async def add_target(self, kind: str, value: str) -> UUID:
        """One more target."""
        target_id: UUID = await self.pool.fetchval(
            "INSERT INTO targets (workspace_id, kind, value) VALUES ($1, $2, $3) RETURNING id",
            self.workspace_id,
            kind,
            value,
        )
        return target_id

    async def add_asset(self, value: str, *addresses: str) -> UUID:
        """One more asset of the target, seen at the start of the scene."""
        asset_id: UUID = await self.pool.fetchval(
            """
            INSERT INTO assets (workspace_id, target_id, value, addresses, first_seen, last_seen)
            VALUES ($1, $2, $3, $4::text[]::inet[], $5, $5) RETURNING id
            """,
            self.workspace_id,
            self.target_id,
            value,
            list(addresses),
            START,
        )
        return asset_id

    def job(
        self,
        category: Category,
        *raws: object,
        minute: float = 0,
        coverage: Mapping[str, object] | None = None,
        **changes: object,
    ) -> MergeJob:
        """A job of the world's run, target and asset, complete and reachable; `changes` are its fields."""
        parsed = parse_records(category, raws)
        assert not parsed.quarantined, parsed.sample
        return self.job_of(category, parsed.records, minute=minute, coverage=coverage, **changes)

    def job_of(
        self,
        category: Category,
        records: Collection[ToolRecord],
        *,
        minute: float = 0,
        coverage: Mapping[str, object] | None = None,
        **changes: object,
    ) -> MergeJob:
        """As `job`, from records that are read already."""
        self.number += 1
        values: dict[str, object] = {
            "job_id": UUID(int=self.number),
            "attempt": 1,
            "workspace_id": self.workspace_id,
            "run_id": self.run_id,
            "target_id": self.target_id,
            "asset_id": None if category is Category.SUBDOMAINS else self.asset_id,
            "service_id": None,
            "tool_id": TOOL_OF[category],
            "observed_at": at(minute),
            "complete": True,
            "reachable": True,
            "coverage": coverage or {},
            "records": records,
        }
        return MergeJob(**(values | changes))  # type: ignore[arg-type]  # checked by every test that reads it

    async def merge(self, category: Category, *jobs: MergeJob) -> Merged:
        """Merges in a transaction of its own."""
        envelopes: list[Envelope] = []

        async def announce(told: Sequence[Envelope]) -> None:
            envelopes.extend(told)

        async with self.pool.acquire() as conn, conn.transaction():
            summaries = await merge(conn, category, jobs, announce)
        return Merged(summaries, envelopes)

    async def row(self, sql: str, *arguments: object) -> Record:
        """The one row of a query; `$1` is the workspace."""
        rows = await self.rows(sql, *arguments)
        assert len(rows) == 1, rows
        return rows[0]

    async def rows(self, sql: str, *arguments: object) -> list[Record]:
        """The rows of a query; `$1` is the workspace."""
        return await self.pool.fetch(sql, self.workspace_id, *arguments)


def types(merged: Merged) -> list[str]:
    """Names of the events, sorted."""
    return sorted(each.type for each in merged.envelopes)


def png(filling: bytes = b"") -> bytes:
    """As much of a PNG of 1280 × 800 as anybody reads, and more if it is to differ from others."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1280, 800) + filling


def picture(url: str, filling: bytes = b"") -> dict[str, object]:
    """The record of a picture of a page."""
    return {"url": url, "png": base64.b64encode(png(filling)).decode()}
