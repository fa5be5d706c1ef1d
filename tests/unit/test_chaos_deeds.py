"""What a storm makes of answers to acts of people, and of what an engine says of its containers."""

from collections.abc import Mapping

import pytest

from runlane import names
from tests.chaos.containers import Account, Made
from tests.chaos.deeds import Request, Said, Tells
from tests.chaos.plan import CONTAINER, GUARD, WEIGHTS, WITH_CONTAINERS, plan


@pytest.mark.parametrize(
    ("tells", "status", "answer", "events"),
    [
        (Tells.ALWAYS, 200, {}, (1,)),
        (Tells.ALWAYS, 409, {"code": "run.closed"}, (0,)),
        (Tells.ALWAYS, 503, {}, (0, 1)),  # perhaps it was done, and the answer lost
        (Tells.ALWAYS, None, {}, (0, 1)),
        (Tells.CHANGED, 200, {"changed": True}, (1,)),
        (Tells.CHANGED, 200, {"changed": 0}, (0,)),
        (Tells.CHANGED, 200, {"is_changed": False}, (0,)),
        (Tells.REASON, 200, {"reason": "mine"}, (1,)),
        (Tells.REASON, 200, {"reason": "somebody else's"}, (0,)),
        (Tells.NOT, 200, {}, (0, 1)),
    ],
)
def test_answer_says_how_many_events_there_are(
    tells: Tells, status: int | None, answer: Mapping[str, object], events: tuple[int, ...]
) -> None:
    assert Said(Request("/v1/x", tells=tells), "mine", status, dict(answer)).events == events


def event(action: str, container_id: str, **labels: str) -> dict[str, object]:
    return {"Action": action, "Actor": {"ID": container_id, "Attributes": labels}}


def test_account_has_containers_of_jobs_and_what_is_gone() -> None:
    ours = {names.CONTAINER_HOME: "home", names.CONTAINER_JOB: "job", names.CONTAINER_ATTEMPT: "2"}
    account = Account()

    account.listen(iter([event("create", "a", **ours), event("create", "b"), event("destroy", "a")]))

    assert account.of(["home"]) == [Made("a", "home", "job", 2)]
    assert account.of(["other"]) == []
    assert account.gone == {"a"}


def test_guards_and_containers_are_hit_only_where_there_is_an_engine() -> None:
    without = {blow.process for blow in plan(7, 500, weights=WEIGHTS)}
    with_engine = {blow.process for blow in plan(7, 500, weights=WITH_CONTAINERS)}

    assert with_engine - without == {GUARD, CONTAINER}


def test_guard_is_only_ever_killed() -> None:
    signals = {blow.signal.name for blow in plan(7, 500, weights={GUARD: 1})}

    assert signals == {"SIGKILL"}
