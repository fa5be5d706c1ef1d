"""What runs on this worker now, and the way to a job in it from outside."""

from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Work(Protocol):
    """A batch in hand, as far as the board needs to know it."""

    @property
    def run_id(self) -> str:
        """Run of its jobs."""
        ...

    def open_pairs(self) -> list[tuple[str, int]]:
        """Jobs in hand with their attempts."""
        ...

    def cancel(self, job_id: str, attempt: int) -> bool:
        """Drops one job."""
        ...

    def stop(self) -> None:
        """Ends the batch soon, giving up what has not ended."""
        ...


class Board:
    """Batches in hand. Cancels that come too late or for others' jobs are harmless."""

    def __init__(self) -> None:
        self._works: set[Work] = set()

    @property
    def batches(self) -> int:
        """Batches in hand."""
        return len(self._works)

    def add(self, work: Work) -> None:
        """A batch begins."""
        self._works.add(work)

    def remove(self, work: Work) -> None:
        """A batch has ended."""
        self._works.discard(work)

    def running(self) -> list[tuple[str, int]]:
        """Jobs in hand with their attempts."""
        return [pair for work in self._works for pair in work.open_pairs()]

    def cancel_job(self, job_id: str, attempt: int) -> None:
        """Drops a job at exactly this attempt: its process dies, its result is discarded."""
        if any(work.cancel(job_id, attempt) for work in self._works):
            log.info("job_cancelled", job_id=job_id, attempt=attempt)

    def cancel_run(self, run_id: str) -> None:
        """Drops every job of a run."""
        for work in self._works:
            if work.run_id == run_id:
                for job_id, attempt in work.open_pairs():
                    work.cancel(job_id, attempt)
                log.info("batch_cancelled", run_id=run_id)

    def stop_all(self) -> None:
        """Ends every batch soon: this process is not the worker any more."""
        for work in self._works:
            work.stop()
