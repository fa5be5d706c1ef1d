"""Properties of the step graph over any graph and any states."""

from hypothesis import given
from hypothesis import strategies as st

from runlane.jobs import STEPS, RunVerb, StepStatus, StepVerb
from runlane.runs import Step, doomed_steps, ready_steps, run_verb


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """An acyclic graph of waiting steps, each needing some of those before it."""
    size = draw(st.integers(1, 8))
    steps: list[Step] = []
    for n in range(size):
        needs = draw(st.sets(st.integers(0, n - 1))) if n else set()
        steps.append(Step(f"s{n}", "noop", StepStatus.WAITING, tuple(f"s{i}" for i in sorted(needs))))
    return draw(st.permutations(steps))


def _with(steps: list[Step], changes: dict[str, StepStatus]) -> list[Step]:
    return [
        Step(s.step_id, s.tool_id, changes.get(s.step_id, s.status), s.needs, is_admitted=True) for s in steps
    ]


@given(graphs(), st.data())
def test_any_order_of_outcomes_closes_the_run(steps: list[Step], data: st.DataObject) -> None:
    outcomes: list[StepStatus] = []
    for _ in range(4 * len(steps)):
        doomed = doomed_steps(steps)
        steps = _with(steps, {s.step_id: STEPS.advance(s.status, StepVerb.SKIP) for s in doomed})
        ready = ready_steps(steps)
        steps = _with(steps, {s.step_id: STEPS.advance(s.status, StepVerb.OPEN) for s in ready})
        running = [s for s in steps if s.status is StepStatus.RUNNING]
        if not running:
            break
        step = data.draw(st.sampled_from(running))
        verb = data.draw(st.sampled_from([StepVerb.COMPLETE, StepVerb.FAIL]))
        outcomes.append(STEPS.advance(step.status, verb))
        steps = _with(steps, {step.step_id: outcomes[-1]})

    expected = RunVerb.FAIL if StepStatus.FAILED in outcomes else RunVerb.COMPLETE
    assert run_verb(steps) is expected


@given(graphs(), st.data())
def test_no_step_is_both_ready_and_doomed(steps: list[Step], data: st.DataObject) -> None:
    changes = {s.step_id: data.draw(st.sampled_from(StepStatus)) for s in steps}
    steps = _with(steps, changes)

    ready = {s.step_id for s in ready_steps(steps)}
    doomed = {s.step_id for s in doomed_steps(steps)}

    assert not ready & doomed
    assert all(changes[need] is StepStatus.COMPLETED for s in steps if s.step_id in ready for need in s.needs)
