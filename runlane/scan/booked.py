"""What batches of foreign programs of either shape have: a book, and options that are read first."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from runlane.jobs import Outcome
from runlane.scan.batch import BatchSpec
from runlane.scan.book import Book
from runlane.scan.wire import ClaimedJob, Member
from runlane.tools.adapters.adapter import Adapter
from runlane.tools.adapters.options import BadOption, Options, read_options


class BookedBatch(ABC):
    """Runs once. `run` ends when every job has an outcome, was cancelled, or the batch was stopped."""

    def __init__(self, spec: BatchSpec, adapter: Adapter, on_finished: Callable[[], None]) -> None:
        self._spec = spec
        self._adapter = adapter
        self._on_finished = on_finished
        self._loop = asyncio.get_running_loop()
        self._book = Book(spec.jobs, spec.limits.job_output_bytes)
        self._is_stopped = False

    def open_jobs(self) -> list[ClaimedJob]:
        """Jobs that have no outcome yet; after `run`, those that were given up."""
        return self._book.open_jobs()

    def take_finished(self) -> list[Member]:
        """Jobs that have ended since the last call."""
        return self._book.take_finished()

    async def run(self) -> None:
        """Works the batch off. Options that cannot be read end every job, and nothing is started."""
        try:
            options = read_options(self._adapter.schema, self._spec.options)
        except BadOption as error:
            self._book.end_all(Outcome.FATAL, str(error))
            self._on_finished()
            return
        await self._work_off(options)

    @abstractmethod
    async def _work_off(self, options: Options) -> None:
        """Works the batch off with these options."""
