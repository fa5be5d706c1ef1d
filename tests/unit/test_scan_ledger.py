"""What a batch remembers of its jobs, without any process."""

from hypothesis import given
from hypothesis import strategies as st

from runlane.jobs import Outcome
from runlane.scan.ledger import WALL_MARGIN_S, JobLimits, Ledger
from runlane.scan.lines import DoneLine, RecordLine
from runlane.scan.wire import ClaimedJob, Member


def make_ledger(count: int, *, parallelism: int = 2, wall_s: float = 10, output_bytes: int = 100) -> Ledger:
    jobs = [ClaimedJob(f"j{number}", number + 1, {}) for number in range(count)]
    ledger = Ledger(jobs, JobLimits(wall_s, output_bytes, parallelism))
    ledger.start_child(0.0)
    return ledger


def completed(job_id: str) -> DoneLine:
    return DoneLine(job_id, Outcome.COMPLETED, complete=True, reachable=True, coverage={"x": 1})


def ids(members: list[Member]) -> list[str]:
    return [member.job_id for member in members]


def test_finished_job_has_its_records_and_what_the_child_said() -> None:
    ledger = make_ledger(1)
    ledger.record(RecordLine("j0", b"{}"), 1.0)
    ledger.done(completed("j0"), 1.0)

    assert ledger.take_finished() == [
        Member(
            "j0",
            1,
            Outcome.COMPLETED,
            None,
            complete=True,
            reachable=True,
            coverage={"x": 1},
            records=(b"{}",),
        )
    ]
    assert ledger.is_over


def test_finished_job_is_handed_out_once() -> None:
    ledger = make_ledger(2)
    ledger.done(completed("j0"), 1.0)

    assert ids(ledger.take_finished()) == ["j0"]
    assert ledger.take_finished() == []


def test_second_outcome_of_a_job_is_ignored() -> None:
    ledger = make_ledger(2)
    ledger.done(completed("j0"), 1.0)
    ledger.done(DoneLine("j0", Outcome.FATAL), 1.0)

    assert [member.outcome for member in ledger.take_finished()] == [Outcome.COMPLETED]


def test_cancelled_job_leaves_nothing_behind() -> None:
    ledger = make_ledger(2)
    ledger.record(RecordLine("j0", b"{}"), 1.0)
    ledger.drop("j0", 1.0)
    ledger.record(RecordLine("j0", b"{}"), 2.0)
    ledger.done(completed("j0"), 2.0)

    assert ledger.take_finished() == []
    assert [job.job_id for job in ledger.open_jobs()] == ["j1"]


def test_cancel_is_for_one_attempt_only() -> None:
    ledger = make_ledger(1)

    assert ledger.holds("j0", 1)
    assert not ledger.holds("j0", 2)


def test_dead_child_costs_only_the_jobs_that_may_have_been_at_work() -> None:
    ledger = make_ledger(5, parallelism=2)
    ledger.done(completed("j0"), 1.0)
    ledger.take_finished()

    ledger.blame(Outcome.TOOL_FAILED, "crashed")

    assert ids(ledger.take_finished()) == ["j1", "j2"]
    assert [job.job_id for job in ledger.open_jobs()] == ["j3", "j4"]


def test_next_child_starts_the_rest_without_what_the_dead_one_found() -> None:
    ledger = make_ledger(3, parallelism=1)
    ledger.record(RecordLine("j1", b"{}"), 1.0)
    ledger.blame(Outcome.TOOL_FAILED, "crashed")
    ledger.start_child(2.0)
    ledger.done(completed("j1"), 3.0)

    assert [(member.job_id, member.records) for member in ledger.take_finished()] == [("j0", ()), ("j1", ())]


def test_clock_of_a_job_runs_only_while_it_may_be_at_work() -> None:
    ledger = make_ledger(2, parallelism=1, wall_s=10)

    assert ledger.expire(10 + WALL_MARGIN_S) == []
    assert ledger.expire(10.1 + WALL_MARGIN_S) == ["j0"]
    assert ledger.expire(20 + WALL_MARGIN_S) == []
    assert ledger.expire(20.3 + 2 * WALL_MARGIN_S) == ["j1"]


def test_job_over_its_limit_keeps_what_it_has_found() -> None:
    ledger = make_ledger(1)
    ledger.record(RecordLine("j0", b"{}"), 1.0)
    ledger.expire(100.0)

    (member,) = ledger.take_finished()
    assert (member.outcome, member.complete, member.records) == (Outcome.TIMED_OUT, False, (b"{}",))


def test_output_over_the_cap_is_cut_and_not_complete() -> None:
    ledger = make_ledger(1, output_bytes=5)

    assert ledger.record(RecordLine("j0", b"12345"), 1.0)
    assert not ledger.record(RecordLine("j0", b"6"), 1.0)
    (member,) = ledger.take_finished()
    assert (member.outcome, member.complete, member.records) == (Outcome.COMPLETED, False, (b"12345",))


def test_unreadable_line_makes_the_jobs_at_work_incomplete() -> None:
    ledger = make_ledger(3, parallelism=2)
    ledger.doubt()
    for number in range(3):
        ledger.done(completed(f"j{number}"), 1.0)

    assert [member.complete for member in ledger.take_finished()] == [False, False, True]


def test_job_that_the_child_drops_unasked_has_failed() -> None:
    ledger = make_ledger(1)
    ledger.done(DoneLine("j0", None), 1.0)

    assert [member.outcome for member in ledger.take_finished()] == [Outcome.TOOL_FAILED]


MOVES = st.lists(
    st.tuples(st.sampled_from(["record", "done", "drop", "expire", "blame", "child"]), st.integers(0, 5)),
    max_size=60,
)


@given(MOVES, st.integers(1, 4))
def test_every_job_ends_at_most_once_and_none_is_forgotten(
    moves: list[tuple[str, int]], parallelism: int
) -> None:
    ledger = make_ledger(6, parallelism=parallelism)
    ended: list[str] = []
    dropped: set[str] = set()
    for now, (move, number) in enumerate(moves):
        job_id = f"j{number}"
        match move:
            case "record":
                ledger.record(RecordLine(job_id, b"x" * 40), now)
            case "done":
                ledger.done(completed(job_id), now)
            case "drop":
                dropped |= {job_id} if ledger.holds(job_id, number + 1) else set()
                ledger.drop(job_id, now)
            case "expire":
                ledger.expire(now * 5.0)
            case "blame":
                ledger.blame(Outcome.TOOL_FAILED, "x")
            case _:
                ledger.start_child(now)
        ended += ids(ledger.take_finished())

    still_open = [job.job_id for job in ledger.open_jobs()]
    assert sorted([*ended, *dropped, *still_open]) == [f"j{number}" for number in range(6)]
