"""Parts of sweeps, a turn at a time: each turn is bounded, says what it did, and where the next one goes on.

What a part finds is done together in one transaction. When that fails, each is done in its own, so that a bad
row costs only itself; it is counted, and looked at again by the next sweep.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

import asyncpg
import structlog
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.failures import translated
from activities.heartbeats import beating
from activities.results import EndedBatch, ResultActivities, SettleInput
from runlane import names
from runlane.archive import ARCHIVE_EVENTS, archive_of
from runlane.db import calling, fires, slow_batches, uploads
from runlane.db.engine import is_lost
from runlane.db.pool import Connection, Pool
from runlane.db.settle import Ending
from runlane.db.sweeps import events, failed_merges, missing_polls, pruning, runs, silent_workers, staged
from runlane.errors import RunlaneError, Unavailable
from runlane.storage import Storage, older, workspace_of_key
from runlane.sweeps import Bounds, Part, Report

log = structlog.get_logger(__name__)

PAGE: Final = 1_000
"""Things that one transaction changes."""

TURN_S: Final = 20.0
"""No page is begun in a turn that has lasted this long."""

SETTLED_AT_ONCE: Final = 16
"""Batches of one settle, as many as a workflow gives it."""

DESCRIBED_AT_ONCE: Final = 8
"""Questions to Temporal in flight."""

DoneT = TypeVar("DoneT")
Find: TypeAlias = Callable[[Connection, UUID, int], Awaitable[list[UUID]]]
"""Ids behind one, in order, so many at most."""
Act: TypeAlias = Callable[[Connection, Sequence[UUID]], Awaitable[Sequence[DoneT]]]
"""Changes what was found, in one transaction; answers something for each thing that it changed."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of staged results and that of archived audit events."""

    results: Storage
    archive: Storage


@dataclass
class SweepTurn:
    """Which part, and where the turn before stopped; empty: from the start."""

    part: str
    cursor: str = ""


@dataclass
class SweepAnswer:
    """What a turn did. `cursor` empty: the part is done."""

    examined: int = 0
    changed: int = 0
    failed: int = 0
    cursor: str = ""


class SweepActivities:
    """Activities of sweeps; they live beside the merge, whose process has the bucket."""

    def __init__(self, pool: Pool, temporal: Client, buckets: Buckets, bounds: Bounds) -> None:
        self._pool = pool
        self._temporal = temporal
        self._storage = buckets.results
        self._archive = buckets.archive
        self._pictures = buckets.results.of_pictures()
        self._settling = ResultActivities(pool, buckets.results)
        self._keep = keep = bounds.keep
        self._parts: Mapping[Part, Callable[[str], Awaitable[SweepAnswer]]] = {
            Part.SILENT_WORKERS: partial(
                self._pages, silent_workers.find_silent, silent_workers.take_off_line
            ),
            Part.MISSING_POLLS: partial(
                self._pages,
                partial(missing_polls.find_idle, poll_s=bounds.poll_s),
                partial(missing_polls.tell_or_take_off, poll_s=bounds.poll_s),
            ),
            Part.LATE_NUDGES: self._repeat_nudges,
            Part.LOST_WORKFLOWS: self._start_lost,
            Part.ORPHANED_JOBS: self._look_after_orphans,
            Part.SLOW_BATCHES: self._settle_early,
            Part.FAILED_MERGES: partial(self._pages, failed_merges.find_failed_merges, failed_merges.rerun),
            Part.STALLED_RUNS: self._advance_stalled,
            Part.LATE_DELIVERIES: partial(self._pages, calling.find_unheard, calling.call_again),
            Part.MISSED_FIRES: partial(self._pages, fires.find_overdue, fires.note_missed),
            Part.OLD_JOBS: partial(
                self._pages,
                partial(pruning.find_old_jobs, days=keep.jobs_days),
                partial(pruning.prune_jobs, days=keep.jobs_days),
            ),
            Part.STAGED_RESULTS: self._remove_results,
            Part.STAGED_OBJECTS: self._remove_objects,
            Part.UPLOADS: self._remove_uploads,
            Part.PICTURES: self._remove_pictures,
            Part.AUDIT_EVENTS: self._archive_audit,
            Part.OUTBOX_DAYS: self._drop_days,
            Part.OLD_ROWS: self._prune_rows,
        }

    @activity.defn
    async def sweep(self, turn: SweepTurn) -> SweepAnswer:
        """Does one turn of a part.

        Idempotent: every change asks its condition again, so a second run after a lost reply finds what is
        left. Two at once are harmless too: the rows decide who changes what.
        """
        async with beating(), translated():
            return await self._parts[Part(turn.part)](turn.cursor)

    async def _pages(self, find: Find, act: Act[DoneT], cursor: str) -> SweepAnswer:
        """Page after page until nothing is left or the turn has lasted long enough."""
        clock = asyncio.get_running_loop().time
        began, report, after = clock(), Report(), _after(cursor)
        while True:
            async with self._pool.acquire() as conn:
                found = await find(conn, after, PAGE)
            done, failed = await self._each(found, act)
            report += Report(len(found), len(done), failed)
            if len(found) < PAGE:
                return _answer(report)
            after = found[-1]
            if clock() - began > TURN_S:
                return _answer(report, str(after))

    async def _each(self, found: Sequence[UUID], act: Act[DoneT]) -> tuple[list[DoneT], int]:
        """All of them together, else one by one; returns what was done and how many failed."""
        if not found:
            return [], 0
        try:
            return list(await self._in_transaction(found, act)), 0
        except (asyncpg.PostgresError, RunlaneError) as error:
            if _is_away(error):
                raise
            log.warning("sweep_page_failed", rows=len(found), error=_said(error))
        done: list[DoneT] = []
        failed = 0
        for each in found:
            try:
                done += await self._in_transaction([each], act)
            except (asyncpg.PostgresError, RunlaneError) as error:
                if _is_away(error):
                    raise
                failed += 1
                log.warning("sweep_row_failed", row=str(each), error=_said(error))
        return done, failed

    async def _in_transaction(self, found: Sequence[UUID], act: Act[DoneT]) -> Sequence[DoneT]:
        async with self._pool.acquire() as conn, conn.transaction():
            return await act(conn, found)

    async def _repeat_nudges(self, _cursor: str) -> SweepAnswer:
        async with self._pool.acquire() as conn, conn.transaction():
            repeated = await runs.repeat_nudges(conn, PAGE)
        return _answer(Report(repeated, repeated))

    async def _settle_early(self, _cursor: str) -> SweepAnswer:
        """Has workflows settle what their slow batches have staged; the settle itself is theirs."""
        async with self._pool.acquire() as conn, conn.transaction():
            asked = await slow_batches.nudge_slow(conn, PAGE)
        return _answer(Report(asked, asked))

    async def _start_lost(self, cursor: str) -> SweepAnswer:
        """Starts the workflows of open runs that Temporal does not run; they adopt what they find.

        The list of what runs is a little behind, so it only says whom to ask about.
        """
        async with self._pool.acquire() as conn:
            found = await runs.find_open_runs(conn, _after(cursor), PAGE)
        if not found:
            return SweepAnswer()
        query = f"WorkflowType = '{names.RUN_WORKFLOW}' AND ExecutionStatus = 'Running'"
        running = {each.id async for each in self._temporal.list_workflows(query, page_size=1000)}
        doubtful = [run_id for run_id in found if names.run_workflow_id(run_id) not in running]
        gate = asyncio.Semaphore(DESCRIBED_AT_ONCE)
        is_there = await asyncio.gather(*(self._has_workflow(run_id, gate) for run_id in doubtful))
        lost = [run_id for run_id, runs_on in zip(doubtful, is_there, strict=True) if not runs_on]
        started, failed = await self._each(lost, runs.start_again)
        return _page(found, Report(len(found), len(started), failed))

    async def _has_workflow(self, run_id: UUID, gate: asyncio.Semaphore) -> bool:
        handle = self._temporal.get_workflow_handle(names.run_workflow_id(run_id))
        try:
            async with gate:
                described = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise Unavailable("Temporal does not answer") from error
        except ValueError:
            return True  # a state that this client has no name for: it is there, and not closed
        return described.status is WorkflowExecutionStatus.RUNNING

    async def _look_after_orphans(self, cursor: str) -> SweepAnswer:
        """Has the workflows look whose worker is gone, and settles what no workflow waits for."""
        async with self._pool.acquire() as conn, conn.transaction():
            asked = 0 if cursor else await runs.nudge_unowned(conn, PAGE)
            found = await runs.find_orphaned(conn, _after(cursor), PAGE)
        report = Report(asked, asked)
        for start in range(0, len(found), SETTLED_AT_ONCE):
            report += await self._settle(found[start : start + SETTLED_AT_ONCE])
        return _page(found, report)

    async def _settle(self, dispatch_ids: Sequence[UUID]) -> Report:
        """What a workflow would have asked for, had one waited; then the runs are asked to advance."""
        async with self._pool.acquire() as conn:
            of_runs = await runs.runs_of(conn, dispatch_ids)
        batches = [EndedBatch(str(dispatch_id), Ending.RELEASED) for dispatch_id in dispatch_ids]
        settled = await self._settling.settle_batches(SettleInput(batches))
        await self._in_transaction(of_runs, runs.nudge)
        left = len(settled.again)
        return Report(len(batches), len(batches) - left, left)

    async def _advance_stalled(self, _cursor: str) -> SweepAnswer:
        async with self._pool.acquire() as conn:
            found = await runs.find_stalled(conn)
        asked, failed = await self._each(found, runs.nudge)
        return _answer(Report(len(found), len(asked), failed))

    async def _remove_results(self, cursor: str) -> SweepAnswer:
        """Rows first, their objects after each commit: a crash in between leaves orphans of the bucket."""
        days = self._keep.results_days
        async with self._pool.acquire() as conn:
            found = await staged.find_orphans(conn, _after(cursor), PAGE, days)
        keys, failed = await self._each(found, partial(staged.remove, days=days))
        await self._storage.discard([key for key in keys if key])
        return _page(found, Report(len(found), len(keys), failed))

    async def _remove_objects(self, cursor: str) -> SweepAnswer:
        """Objects that no row refers to. One whose age cannot be told, or that is none of ours, stays."""
        objects = await self._storage.page(cursor, PAGE)
        async with self._pool.acquire() as conn, conn.transaction():
            bound = await staged.days_ago(conn, self._keep.results_days)
            of = {key: owner for key in older(objects, bound) if (owner := workspace_of_key(key))}
            orphans = await staged.unreferred(conn, list(of))
            await staged.announce(conn, {key: of[key] for key in orphans})
        await self._storage.discard(orphans)
        report = Report(len(objects), len(orphans))
        return _answer(report, objects[-1].key if len(objects) == PAGE else "")

    async def _remove_uploads(self, cursor: str) -> SweepAnswer:
        """Rows first, their objects after each commit: a crash in between leaves orphans of the bucket."""
        async with self._pool.acquire() as conn:
            found = await uploads.find_expired(conn, _after(cursor), PAGE)
        keys, failed = await self._each(found, uploads.forget)
        await self._storage.discard(keys)
        return _page(found, Report(len(found), len(found) - failed, failed))

    async def _remove_pictures(self, cursor: str) -> SweepAnswer:
        """Pictures that no row refers to. One of unknown age stays; a young one may be on its way."""
        objects = await self._pictures.page(cursor, PAGE)
        async with self._pool.acquire() as conn:
            bound = await staged.days_ago(conn, self._keep.results_days)
            orphans = await staged.unreferred(conn, older(objects, bound))
        await self._pictures.discard(orphans)
        return _answer(Report(len(objects), len(orphans)), objects[-1].key if len(objects) == PAGE else "")

    async def _archive_audit(self, _cursor: str) -> SweepAnswer:
        """Archives the oldest events and deletes them; the archive is there before the rows are gone."""
        async with self._pool.acquire() as conn:
            rows = await events.oldest_audit(conn, ARCHIVE_EVENTS, self._keep.audit_days)
        if not rows:
            return SweepAnswer()
        archive = await asyncio.to_thread(archive_of, [dict(row) for row in rows])
        await self._archive.ensure_bucket()
        for key, body in ((archive.key, archive.body), (archive.manifest_key, archive.manifest)):
            await self._archive.put(key, body)
        await self._archive.load(archive.key, size_bytes=len(archive.body), sha256=archive.sha256)
        archived = events.Archived(archive.first_id, archive.last_id, len(rows), archive.key, archive.sha256)
        async with self._pool.acquire() as conn, conn.transaction():
            await events.drop_audit(conn, archived)
        report = Report(len(rows), len(rows))
        return _answer(report, str(archive.last_id) if len(rows) == ARCHIVE_EVENTS else "")

    async def _drop_days(self, cursor: str) -> SweepAnswer:
        """Days of the outbox, then what is left outside of them; a busy one is tried by the next sweep."""
        report = Report()
        async with self._pool.acquire() as conn:
            for day in [] if cursor else await events.old_days(conn):
                is_gone = await events.drop_day(conn, day)
                report += Report(1, int(is_gone is True), int(is_gone is None))
                if is_gone is None:
                    break  # each try holds up those who write events
            strays = await events.drop_strays(conn, PAGE)
        return _answer(report + Report(strays, strays), "strays" if strays == PAGE else "")

    async def _prune_rows(self, cursor: str) -> SweepAnswer:
        """A page of one rule in each turn; a table that cannot be pruned does not keep the others."""
        rules = pruning.rules(self._keep)
        at = int(cursor or 0)
        try:
            async with self._pool.acquire() as conn, conn.transaction():
                pruned = await pruning.prune_rows(conn, rules[at], PAGE)
        except asyncpg.PostgresError as error:
            if _is_away(error):
                raise
            log.warning("sweep_table_failed", table=rules[at].table, error=_said(error))
            pruned, failed = 0, 1
        else:
            failed = 0
        following = at if pruned == PAGE else at + 1
        return _answer(Report(pruned, pruned, failed), str(following) if following < len(rules) else "")


def _answer(report: Report, cursor: str = "") -> SweepAnswer:
    return SweepAnswer(report.examined, report.changed, report.failed, cursor)


def _page(found: Sequence[UUID], report: Report) -> SweepAnswer:
    return _answer(report, str(found[-1]) if len(found) == PAGE else "")


def _after(cursor: str) -> UUID:
    return UUID(cursor) if cursor else UUID(int=0)


def _said(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]  # what follows may be the row


def _is_away(error: Exception) -> bool:
    """Whether the server is to blame and not a row."""
    return isinstance(error, Unavailable) or is_lost(error)
