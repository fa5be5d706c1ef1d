"""One merge: the records of finished jobs of one category become the current state of the inventory."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from runlane.db.inventory.findings import merge_findings
from runlane.db.inventory.pictures import merge_pictures
from runlane.db.inventory.ports import merge_ports
from runlane.db.inventory.sightings import Announce, Ledger, MergeJob, MergeSummary
from runlane.db.inventory.subdomains import merge_subdomains
from runlane.db.inventory.subjects import lock_subjects
from runlane.db.inventory.urls import merge_urls
from runlane.db.inventory.web import merge_web
from runlane.db.pool import Connection
from runlane.tools import Category


async def _merge_nothing(_conn: Connection, jobs: Sequence[MergeJob], ledger: Ledger) -> None:
    for job in jobs:
        ledger.left_out(job, len(job.records))


MERGES: Final[Mapping[Category, Callable[[Connection, Sequence[MergeJob], Ledger], Awaitable[None]]]] = (
    MappingProxyType(
        {
            Category.SUBDOMAINS: merge_subdomains,
            Category.PORTS_SCANNER: merge_ports,
            Category.HTTP_PROBE: merge_web,
            Category.URL_DISCOVERY: merge_urls,
            Category.VULNERABILITIES: merge_findings,
            Category.SCREENSHOT: merge_pictures,
            Category.BENCH: _merge_nothing,
        }
    )
)
"""The merge of every category (total: asserted by a test)."""


async def merge(
    conn: Connection, category: str, jobs: Sequence[MergeJob], announce: Announce
) -> dict[UUID, MergeSummary]:
    """Merges the results of jobs of one category, of any runs and workspaces, in the caller's transaction.

    Call it with jobs whose rows are locked at this attempt, so that no result is merged twice. Order does not
    matter: what is newest by `observed_at` stays, `last_seen` moves only forward and `first_seen` only back.
    Things that complete results looked for and missed twice in a row are closed. Events of what is new go to
    `announce`, portion by portion; the answer is a summary for each job.

    Several merges in one transaction need `lock_subjects` first. Locks last until the end of the transaction;
    one lock for each subject, so keep to some hundred jobs per call.

    Raises:
        ValueError: no such category.
        Defect: records of another category.
    """
    kind = Category(category)
    ledger = Ledger(jobs, announce)
    if jobs:
        await lock_subjects(conn, {kind: jobs})
        await MERGES[kind](conn, jobs, ledger)
        await ledger.tell()
    return ledger.summaries()
