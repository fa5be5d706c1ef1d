"""What the end of a child means for the jobs that it was started for. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from runlane.jobs import Outcome
from runlane.scan.book import Book
from runlane.scan.lines import MAX_ERROR
from runlane.scan.pins import Refusal
from runlane.scan.running import How, RunEnd
from runlane.tools.adapters.adapter import Conclusion

_OUTCOMES: Final[Mapping[How, Outcome]] = {
    How.TIMED_OUT: Outcome.TIMED_OUT,
    How.FAILED: Outcome.TOOL_FAILED,
    How.ABSENT: Outcome.REJECTED,
}
"""The others decide nothing: a lost launcher is replaced, and what was killed is not wanted."""


def refuse(book: Book, job_id: str, refusal: Refusal) -> None:
    """Ends a job for which no program is started."""
    if refusal.outcome is Outcome.COMPLETED:
        book.conclude(job_id, Conclusion(complete=True, note=refusal.error))
    else:
        book.end(job_id, refusal.outcome, refusal.error)


def settle(book: Book, job_ids: Sequence[str], end: RunEnd) -> None:
    """Ends jobs whose child did not end by itself; what it had found is kept with them."""
    outcome = _OUTCOMES.get(end.how)
    if outcome is not None:
        for job_id in job_ids:
            book.end(job_id, outcome, with_tail(end.error, end.stderr))


def with_diagnostics(conclusion: Conclusion, end: RunEnd) -> Conclusion:
    """A failure says what the program wrote last."""
    if conclusion.failure is None:
        return conclusion
    return replace(conclusion, failure=with_tail(conclusion.failure, end.stderr))


def with_tail(error: str, stderr: str) -> str:
    """An error with the end of the diagnostics, as long as it may be."""
    return f"{error}: {stderr[-(MAX_ERROR - len(error) - 2) :]}" if stderr else error
