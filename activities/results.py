"""The merge: settles batches that have ended. Runs on the queue `job-result`, in a process of its own.

Parsing never delays a workflow task, and one merge of a run (or shard) is in flight at a time: what ends
meanwhile is the next group.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from temporalio import activity

from activities.bodies import NOTHING, Found, fitting, read_bodies
from activities.failures import translated
from activities.heartbeats import beating
from activities.pictures import put_pictures, unwanted
from activities.verdicts import events_of
from runlane.db import gathering, inventory, limits, losses, outbox, rates, settle
from runlane.db.gathering import Finder
from runlane.db.inventory import MergeJob, MergeSummary
from runlane.db.pool import Connection, Pool
from runlane.db.settle import Attempt, Decision, Ending
from runlane.errors import Unavailable
from runlane.events import Envelope, scrub_text
from runlane.jobs import MAX_LOSSES, Outcome
from runlane.storage import Storage
from runlane.tools import Category, Parsed

log = structlog.get_logger(__name__)

RETRY_MERGE_S: Final = 1.0
"""Back-off before a failed merge is tried again; doubled each time."""

_UNMERGEABLE: Final = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError)
"""Errors that the data of a result is to blame for."""


@dataclass
class EndedBatch:
    """A batch whose activity has ended, or that nobody waits for any more."""

    dispatch_id: str
    ending: str = Ending.ENDED


@dataclass
class SettleInput:
    """Batches to settle together: one transaction."""

    batches: list[EndedBatch] = field(default_factory=list)


@dataclass
class SettleResult:
    """Batches with members whose merge failed and is to be tried again after `delay_s`."""

    again: list[EndedBatch] = field(default_factory=list)
    delay_s: float = 0.0
    jobs: int = 0


class ResultActivities:
    """Activities of the result worker."""

    def __init__(self, pool: Pool, storage: Storage) -> None:
        self._pool = pool
        self._storage = storage
        self._pictures = storage.of_pictures()

    @activity.defn
    async def settle_batches(self, request: SettleInput) -> SettleResult:
        """Merges what was staged for these batches, writes the verdicts and releases what was not staged.

        Idempotent: only jobs still in progress at the attempt that was read are touched, so a second run
        after a lost reply finds nothing to do. A server that does not answer is retried without limit and
        counts nowhere; a merge that fails on its data counts on the attempt, three times at most.
        """
        async with beating(), translated():
            return await self._settle(request)

    async def _settle(self, request: SettleInput) -> SettleResult:
        endings = _endings(request.batches)
        async with self._pool.acquire() as conn:
            attempts = [
                attempt
                for attempt in await settle.attempts_of(conn, list(endings))
                if attempt.staged is not None or endings[attempt.dispatch_id] is not Ending.RUNNING
            ]
            staged = await settle.bodies_of(conn, attempts)
        bodies = fitting(staged)
        left = {body.result_id for body in staged[len(bodies) :]}
        waiting = {attempt.dispatch_id for attempt in attempts if attempt.result_id in left}
        attempts = [attempt for attempt in attempts if attempt.result_id not in left]
        found, corrupt = await read_bodies(self._storage, bodies, attempts)
        pictures = await put_pictures(self._pictures, attempts, found)
        async with self._pool.acquire() as conn, conn.transaction():
            locked = await settle.lock(conn, attempts)
            merge = _Merge(conn, found, corrupt)
            decisions = await merge.decide_all(locked, endings)
            await settle.write(conn, decisions)
            await outbox.insert(conn, events_of(decisions, datetime.now(UTC)))
            again = {attempt.dispatch_id for attempt in merge.failed}
            late = waiting | _staged_late(attempts, locked) - again
            over = {i: ending for i, ending in endings.items() if ending is not Ending.RUNNING}
            for is_lost in (False, True):
                ended = [i for i, ending in over.items() if (ending is Ending.LOST) is is_lost]
                closed = [i for i in ended if i not in again | late]
                if closed:
                    late |= await settle.close(conn, closed, is_lost=is_lost)
            await rates.call_waiting(conn, list(endings))
            if decisions:
                await limits.call_first_after(conn, list(endings))
            else:  # they were cancelled, and what they held under limits is free
                await limits.call_first(conn)
            keys = await settle.discard_results(conn, [body.result_id for body in bodies], list(endings))
        await _discard(self._storage, keys)
        await _discard(self._pictures, unwanted(pictures, decisions))
        return SettleResult(
            again=[EndedBatch(str(i), endings[i]) for i in sorted(again | late)],
            delay_s=_delay_s(merge.failed),
            jobs=len(decisions),
        )


async def _discard(storage: Storage, keys: list[str]) -> None:
    """Deletes objects that nothing refers to. A second run would not know them: those left are orphans."""
    try:
        await storage.discard(keys)
    except Unavailable as error:
        log.warning("objects_left", objects=len(keys), detail=error.detail)


def _endings(batches: Sequence[EndedBatch]) -> dict[UUID, Ending]:
    """How each batch ended: one that was running when it came into the group may have ended since."""
    goes_on_first = sorted(batches, key=lambda batch: batch.ending != Ending.RUNNING)
    return {UUID(batch.dispatch_id): Ending(batch.ending) for batch in goes_on_first}


def _staged_late(attempts: Sequence[Attempt], locked: Sequence[Attempt]) -> set[UUID]:
    """Dispatches with a member that was staged or cancelled between read and lock: they are settled again."""
    decided = {attempt.job_id for attempt in locked}
    return {a.dispatch_id for a in attempts if a.staged is None and a.job_id not in decided}


def _delay_s(failed: Sequence[Attempt]) -> float:
    """Back-off before failed merges are tried again; none when nothing failed."""
    return max((RETRY_MERGE_S * 2**attempt.merge_failures for attempt in failed), default=0.0)


def _outcome_of(attempt: Attempt, endings: Mapping[UUID, Ending]) -> Outcome:
    return settle.unstaged_outcome(endings[attempt.dispatch_id])


class _Merge:
    """One settle transaction: merges records category by category and decides each attempt."""

    def __init__(self, conn: Connection, found: Mapping[UUID, Found], corrupt: Mapping[UUID, str]) -> None:
        self._conn = conn
        self._found = found
        self._corrupt = corrupt
        self.failed: list[Attempt] = []

    async def decide_all(self, attempts: Sequence[Attempt], endings: Mapping[UUID, Ending]) -> list[Decision]:
        lost = [a for a in attempts if a.staged is None and _outcome_of(a, endings) is Outcome.LOST]
        lives = await self._lives_lost(lost, endings)
        decisions: list[Decision] = []
        to_merge: dict[Category, list[Attempt]] = defaultdict(list)
        for attempt in attempts:
            if attempt.staged is Outcome.COMPLETED:
                to_merge[Category(attempt.category)].append(attempt)
            elif attempt.staged is not None:
                decision = settle.decide(attempt, attempt.staged, attempt.error or attempt.staged)
                decisions.append(self._with_partial(decision))
            else:
                outcome = _outcome_of(attempt, endings)
                lost_in = lives.get(attempt.job_id, 0)
                decisions.append(settle.decide(attempt, outcome, lives_lost=lost_in))
        await inventory.lock_subjects(self._conn, to_merge)
        for category, members in sorted(to_merge.items()):
            decisions += await self._merge_category(category, members)
        return decisions

    async def _lives_lost(
        self, lost: Sequence[Attempt], endings: Mapping[UUID, Ending]
    ) -> Mapping[UUID, int]:
        gone = [attempt.worker_id for attempt in lost if endings[attempt.dispatch_id] is Ending.LOST]
        await losses.note_losses(self._conn, gone)
        return await losses.lives_lost(
            self._conn, [attempt.job_id for attempt in lost if attempt.losses + 1 >= MAX_LOSSES]
        )

    def _with_partial(self, decision: Decision) -> Decision:
        return replace(decision, partial=self._of(decision.attempt).partial)

    async def _merge_category(self, category: Category, attempts: Sequence[Attempt]) -> list[Decision]:
        good = [attempt for attempt in attempts if attempt.result_id not in self._corrupt]
        bad = {a.job_id: self._corrupt[a.result_id] for a in attempts if a.result_id and a not in good}
        decisions: list[Decision] = []
        try:
            decisions += await self._merge_together(category, good)
        except _UNMERGEABLE as error:
            reason = str(error).partition("\n")[0]  # what follows is the row: records belong in no log
            log.warning("merge_failed_together", category=category, jobs=len(good), error=reason[:200])
            for attempt in good:
                try:
                    decisions += await self._merge_together(category, [attempt])
                except _UNMERGEABLE as alone:
                    bad[attempt.job_id] = f"merge failed: {type(alone).__name__}"
        failed = [attempt for attempt in attempts if attempt.job_id in bad]
        return decisions + await self._count_failures(failed, bad)

    async def _merge_together(self, category: Category, attempts: Sequence[Attempt]) -> list[Decision]:
        parsed = {attempt.job_id: self._of(attempt).parsed for attempt in attempts}
        if not attempts or category is Category.BENCH:
            return [_completed(a, parsed[a.job_id], None) for a in attempts]
        decisions: list[Decision] = []
        async with self._conn.transaction():
            for finder, members in _by_finder(attempts).items():
                jobs = [_merge_job(attempt, parsed[attempt.job_id]) for attempt in members]
                announce = partial(self._announce, finder)
                summaries = await inventory.merge(self._conn, category, jobs, announce)
                decisions += [_completed(a, parsed[a.job_id], summaries[a.job_id]) for a in members]
        return decisions

    async def _announce(self, finder: Finder, envelopes: Sequence[Envelope]) -> None:
        await gathering.gather_found(self._conn, finder, envelopes)
        await outbox.insert(self._conn, envelopes)

    def _of(self, attempt: Attempt) -> Found:
        return self._found.get(attempt.job_id, NOTHING)

    async def _count_failures(
        self, attempts: Sequence[Attempt], reasons: Mapping[UUID, str]
    ) -> list[Decision]:
        final = [a for a in attempts if a.merge_failures + 1 >= settle.MAX_MERGE_FAILURES]
        again = [a for a in attempts if a not in final]
        if attempts:
            await settle.count_merge_failure(self._conn, attempts)
        self.failed += again
        return [self._with_partial(settle.decide(a, Outcome.MERGE_FAILED, reasons[a.job_id])) for a in final]


def _by_finder(attempts: Sequence[Attempt]) -> Mapping[Finder, list[Attempt]]:
    """Attempts by run and tool: nearly always one, since a run's workflow settles its own batches."""
    groups: dict[Finder, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[Finder(attempt.workspace_id, attempt.run_id, attempt.tool_id)].append(attempt)
    return groups


def _merge_job(attempt: Attempt, parsed: Parsed) -> MergeJob:
    return MergeJob(
        job_id=attempt.job_id,
        attempt=attempt.attempt,
        workspace_id=attempt.workspace_id,
        run_id=attempt.run_id,
        target_id=attempt.target_id,
        asset_id=attempt.asset_id,
        service_id=attempt.service_id,
        tool_id=attempt.tool_id,
        observed_at=attempt.observed_at,
        complete=attempt.is_complete,
        reachable=attempt.is_reachable,
        coverage=dict(attempt.coverage),
        records=parsed.records,
    )


def _completed(attempt: Attempt, parsed: Parsed, counts: MergeSummary | None) -> Decision:
    decision = settle.decide(attempt, Outcome.COMPLETED)
    summary: dict[str, object] = {"records": len(parsed.records)}
    if parsed.quarantined:
        sample = [scrub_text(reason) for reason in parsed.sample]
        summary |= {"quarantined": parsed.quarantined, "sample": sample}
    if counts is not None:
        summary |= {"new": counts.new, "updated": counts.updated, "outside": counts.outside}
    return Decision(attempt, decision.outcome, decision.verdict, summary=summary)
