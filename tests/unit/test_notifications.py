"""Who is told what, and when many become one: the rules, without any server."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from runlane.events import EVENT_POLICY, BusEvent, Envelope, Severity
from runlane.notifications import (
    DEFAULT,
    MOST_ALONE,
    About,
    Audience,
    Mute,
    Rule,
    count_alone,
    digest_key,
    is_echo,
    is_known,
    loudness,
    may_notify,
    recipients_of,
    sentence,
    with_default,
)

EVERYBODY = frozenset({"ann", "ben"})
TARGET, GROUP = uuid4(), uuid4()


def about(event_type: str, severity: Severity, *, target: UUID | None = None) -> About:
    return About(event_type, severity, target, frozenset({GROUP}) if target == TARGET else frozenset())


def told(about: About, *rules: Rule, mutes: tuple[Mute, ...] = ()) -> set[str]:
    return set(recipients_of(about, Audience(with_default(rules), mutes, EVERYBODY)))


def sent(event_type: str, data: dict[str, object], **attributes: str) -> BusEvent:
    envelope = Envelope(uuid4(), event_type, uuid4(), "job/1", data, attributes)
    return BusEvent(envelope, 1, datetime.now(UTC))


@pytest.mark.parametrize(
    ("severity", "hears"),
    [(Severity.INFO, False), (Severity.LOW, False), (Severity.MEDIUM, True), (Severity.CRITICAL, True)],
)
def test_without_a_rule_everybody_is_told_of_what_is_at_least_medium(severity: Severity, hears: bool) -> None:
    assert told(about("job.failed", severity)) == (set(EVERYBODY) if hears else set())


def test_own_rule_called_default_takes_the_place_of_the_built_in_one() -> None:
    quiet = Rule(DEFAULT, least=Severity.CRITICAL, recipients=("ann",))

    assert told(about("job.failed", Severity.HIGH), quiet) == set()
    assert told(about("job.failed", Severity.CRITICAL), quiet) == {"ann"}
    assert told(about("job.failed", Severity.CRITICAL), Rule(DEFAULT, is_on=False)) == set()


@pytest.mark.parametrize(
    ("rule", "hears"),
    [
        (Rule("a", types=("job",)), True),
        (Rule("a", types=("job.failed", "target")), True),
        (Rule("a", types=("job.fail",)), False),
        (Rule("a", types=("workflow.run",)), False),
        (Rule("a", target_id=TARGET), True),
        (Rule("a", target_id=uuid4()), False),
        (Rule("a", group_id=GROUP), True),
        (Rule("a", group_id=uuid4()), False),
        (Rule("a", least=Severity.HIGH), False),
    ],
)
def test_rule_is_about_types_targets_and_severities(rule: Rule, hears: bool) -> None:
    happened = about("job.failed", Severity.MEDIUM, target=TARGET)

    assert told(happened, Rule(DEFAULT, is_on=False), rule) == (set(EVERYBODY) if hears else set())


def test_recipient_whose_keys_are_gone_is_not_told() -> None:
    rules = (Rule(DEFAULT, recipients=("ann", "gone")),)

    assert told(about("job.failed", Severity.HIGH), *rules) == {"ann"}


@pytest.mark.parametrize(
    ("mute", "hears"),
    [
        (Mute(type="job"), False),
        (Mute(type="job.failed"), False),
        (Mute(type="job.cancelled"), True),
        (Mute(target_id=TARGET), False),
        (Mute(target_id=uuid4()), True),
        (Mute(rule=DEFAULT), False),
        (Mute(rule="other"), True),
    ],
)
def test_mute_is_of_a_rule_a_type_or_a_target(mute: Mute, hears: bool) -> None:
    happened = about("job.failed", Severity.HIGH, target=TARGET)

    assert told(happened, mutes=(mute,)) == (set(EVERYBODY) if hears else set())


def test_finding_is_as_loud_as_it_is_and_everything_else_as_its_policy() -> None:
    assert loudness("vulnerability.detected", {"severity": "low"}) is Severity.LOW
    assert loudness("vulnerability.detected", {"severity": "odd"}) is Severity.HIGH
    assert loudness("job.failed", {"severity": "critical"}) is Severity.MEDIUM


def test_events_of_notifications_and_silent_ones_never_notify() -> None:
    assert may_notify("job.failed")
    assert not [name for name in EVENT_POLICY if name.startswith("notification.") and may_notify(name)]
    assert not may_notify("job.created")
    assert not may_notify("no.such")
    assert [is_known(pattern) for pattern in ("job", "workflow.run", "notification", "job.created")] == [
        True,
        True,
        False,
        False,
    ]


def test_dead_letter_of_this_lane_is_not_told_again() -> None:
    assert is_echo(sent("dead_letter.created", {"lane": "notifications"}))
    assert not is_echo(sent("dead_letter.created", {"lane": "audit"}))


def test_what_is_alike_is_of_one_type_run_and_cause() -> None:
    run = str(uuid4())

    assert digest_key(sent("job.failed", {"run_id": run})) == digest_key(sent("job.failed", {"run_id": run}))
    keys = {
        digest_key(sent("job.failed", {"run_id": run})),
        digest_key(sent("job.failed", {"run_id": str(uuid4())})),
        digest_key(sent("job.cancelled", {"run_id": run})),
        digest_key(sent("job.cancelled", {"run_id": run}, cause="run")),
    }
    assert len(keys) == 4


def test_twenty_a_minute_come_alone_and_what_one_act_sets_off_never_does() -> None:
    assert count_alone(50, 0, is_digest_open=False, is_caused=False) == MOST_ALONE
    assert count_alone(50, 15, is_digest_open=False, is_caused=False) == MOST_ALONE - 15
    assert count_alone(50, MOST_ALONE, is_digest_open=False, is_caused=False) == 0
    assert count_alone(1, 0, is_digest_open=True, is_caused=False) == 0
    assert count_alone(1, 0, is_digest_open=False, is_caused=True) == 0


def test_sentence_says_what_happened_to_what() -> None:
    data: dict[str, object] = {"step_id": "ports", "reason": "fatal", "error": "x" * 500}

    assert sentence("job.failed", 1, data) == "job failed: ports: fatal"
    assert sentence("job.failed", 30, data) == "30 times job failed"
    assert len(sentence("job.failed", 1, {"error": "x" * 500})) == 200
