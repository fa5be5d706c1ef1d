"""Size: memory of large merges."""

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import overload

import pytest
import pytest_asyncio

from runlane.db.pool import Pool
from runlane.tools import Category
from runlane.tools.records import digest
from runlane.tools.url_discovery import UrlRecord
from tests.integration.merge_world import World

pytestmark = pytest.mark.integration

URLS = Category.URL_DISCOVERY
MANY = 30_000
MEMORY_OF_A_CHUNK = 48 * 1024 * 1024


class LazyUrls(Sequence[UrlRecord]):
    """Records that are made when they are read, as those of a large staged result are."""

    def __len__(self) -> int:
        return MANY

    @overload
    def __getitem__(self, index: int) -> UrlRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[UrlRecord]: ...
    def __getitem__(self, index: int | slice) -> UrlRecord | Sequence[UrlRecord]:
        if isinstance(index, slice):
            return [self[i] for i in range(MANY)[index]]
        if index >= MANY:
            raise IndexError(index)
        # each URL twice, far apart: duplicates must not need the same chunk
        url = f"http://app.lab.test:8080/{'p' * 60}/{index % (MANY // 2)}"
        return UrlRecord(digest(url), url, "app.lab.test", 8080, 200, "text/html", 1, "link")

    def __iter__(self) -> Iterator[UrlRecord]:
        return (self[index] for index in range(MANY))


@pytest_asyncio.fixture
async def world(pool: Pool) -> World:
    return await World.make(pool)


async def test_thirty_thousand_records_merge_in_flat_memory(world: World) -> None:
    job = world.job_of(URLS, LazyUrls())

    merged = await world.merge(URLS, job)

    summary = merged.summaries[job.job_id]
    assert (summary.records, summary.new, summary.updated) == (MANY, MANY // 2, MANY // 2)
    assert len(merged.envelopes) == MANY // 2
    del merged

    gc.collect()
    tracemalloc.start()
    try:
        again = await world.merge(URLS, job)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # nothing is new the second time, so what is measured is the merge and not its events
    assert again.envelopes == []
    assert peak < MEMORY_OF_A_CHUNK
