"""The catalog: closed, complete, and a type error when it is misspelt."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from runlane.db.acts import Act, Action, Deed, acted
from runlane.errors import UnknownEvent
from runlane.events import (
    EVENT_CATALOG,
    EVENT_POLICY,
    LEAVES,
    SUBSCRIPTIONS,
    Lane,
    Severity,
    catalog,
    find_leaf,
    is_subscribed,
    payloads,
    require_publishable,
)
from runlane.events.audit_actions import AUDIT_ACTIONS, OWN_AUDIT_ACTIONS
from runlane.events.catalog import NAME, RESERVED, Leaf
from runlane.events.docs import render_events
from runlane.events.scrub import is_credential_name

ROOT = Path(__file__).parents[2]

DOMAINS = {
    "workspace", "member", "permission_group", "api_key", "integration", "asset", "vulnerability", "job",
    "scan", "target", "workflow", "project", "worker", "notification",
}  # fmt: skip

NO_LOOP = ("integration.delivery.", "integration.endpoint.", "notification.", "dead_letter.")
"""What tells of a delivery must not be delivered where that failed."""


def test_the_path_of_a_leaf_is_its_name() -> None:
    assert EVENT_CATALOG.job.created.name == "job.created"
    assert EVENT_CATALOG.asset.service.discovered.name == "asset.service.discovered"
    assert find_leaf("job.created") is EVENT_CATALOG.job.created


def test_names_follow_the_grammar_and_have_a_policy() -> None:
    assert all(NAME.fullmatch(name) for name in LEAVES)
    assert EVENT_POLICY.keys() == LEAVES.keys()


def test_what_is_audited_and_what_is_on_the_bus_are_the_same_list() -> None:
    persisted = {name for name, policy in EVENT_POLICY.items() if policy.persist}

    assert len(AUDIT_ACTIONS) == 45
    assert not AUDIT_ACTIONS & OWN_AUDIT_ACTIONS
    assert persisted - OWN_AUDIT_ACTIONS == AUDIT_ACTIONS
    assert persisted - AUDIT_ACTIONS == OWN_AUDIT_ACTIONS


def test_catalog_that_audits_another_list_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "OWN_AUDIT_ACTIONS", OWN_AUDIT_ACTIONS | {"job.created"})

    with pytest.raises(UnknownEvent, match=r"job\.created"):
        catalog.leaves_of(EVENT_CATALOG)


def test_every_domain_of_the_document_has_its_leaves() -> None:
    assert {name.partition(".")[0] for name in LEAVES} >= DOMAINS
    assert len(LEAVES) >= 110


def test_what_leaves_the_platform_may_notify_and_never_tells_of_a_delivery() -> None:
    outbound = {name for name, leaf in LEAVES.items() if leaf.is_outbound}

    assert [name for name in outbound if EVENT_POLICY[name].severity is Severity.NONE] == []
    assert [name for name in outbound if name.startswith(NO_LOOP)] == []


def test_the_tree_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EVENT_CATALOG.job.created = None  # type: ignore[misc, assignment]  # the point of the test
    with pytest.raises(AttributeError):
        EVENT_CATALOG.jobs = None  # type: ignore[attr-defined]  # the point of the test


@pytest.mark.parametrize("name", ["job.abolished", "job", ""])
def test_an_unknown_event_may_not_be_published(name: str) -> None:
    with pytest.raises(UnknownEvent):
        require_publishable(name)


def test_a_reserved_event_may_not_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = replace(EVENT_CATALOG.job.created, producer=RESERVED)
    monkeypatch.setattr(catalog, "LEAVES", {"job.created": reserved})

    with pytest.raises(UnknownEvent, match="reserved"):
        require_publishable("job.created")


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=lambda leaf: leaf.name)
def test_no_field_of_a_payload_would_be_dropped_by_the_scrub(leaf: Leaf[payloads.Payload]) -> None:
    assert [field for field in leaf.payload.model_fields if is_credential_name(field)] == []
    assert leaf.payload.__doc__


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=lambda leaf: leaf.name)
def test_the_producer_of_a_leaf_exists_and_names_its_branch(leaf: Leaf[payloads.Payload]) -> None:
    if leaf.is_reserved:
        return
    spec = importlib.util.find_spec(leaf.producer)
    assert spec is not None
    assert spec.origin is not None
    branch = leaf.name.rpartition(".")[0]
    source = Path(spec.origin).read_text()
    assert f"EVENT_CATALOG.{branch}" in source
    assert leaf.name.rpartition(".")[2] in source


def test_every_lane_is_subscribed_to_something() -> None:
    assert SUBSCRIPTIONS.keys() == set(Lane)
    assert is_subscribed(Lane.AUDIT, "job.created")


MISSPELT = """
from uuid import uuid4
from runlane.events import EVENT_CATALOG, Severity, envelope, payloads
from runlane.events.leaf import Leaf, audited

EVENT_CATALOG.job.craeted
EVENT_CATALOG.jobs.created
envelope("job.created", None, workspace_id=uuid4(), subject="job/1")
payload = payloads.ApiKeyRevoked(key_id=uuid4(), name="x")
envelope(EVENT_CATALOG.job.created, payload, workspace_id=uuid4(), subject="job/1")
payloads.JobStarted(job_id=uuid4())
Leaf("job.abolished", payloads.JobStarted, producer="")
audited("job.abolished", payloads.JobStarted)
audited("job.abolished", severity=Severity.NONE)
"""


def test_a_misspelt_leaf_a_wrong_payload_or_none_and_no_policy_are_type_errors(tmp_path: Path) -> None:
    program = tmp_path / "misspelt.py"
    program.write_text(MISSPELT)

    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )

    lines = [int(line.split(":")[1]) for line in answer.stdout.splitlines() if ": error:" in line]
    assert answer.returncode == 1
    assert set(lines) == {6, 7, 8, 10, 11, 12, 13, 14}, answer.stdout


def test_the_page_of_the_events_is_up_to_date() -> None:
    assert (ROOT / "docs/generated/events.md").read_text() == render_events()


def test_the_page_names_every_event_and_payload() -> None:
    page = render_events()

    assert all(f"| {name} |" in page for name in LEAVES)
    assert all(f"### {leaf.payload.__name__}" in page for leaf in LEAVES.values())


def test_a_field_that_may_be_null_must_still_be_given() -> None:
    with pytest.raises(ValueError, match="asset_id"):
        payloads.JobCreated.model_validate(
            {
                "job_id": uuid4(), "run_id": uuid4(), "step_id": "s", "tool_id": "t", "attempt": 0,
                "category": "c", "target_id": None,
            }
        )  # fmt: skip


def test_acts_on_rules_and_things_have_names_of_their_own_and_those_on_runs_do_not() -> None:
    workspace = uuid4()
    names_of = {action: acted(Act(), Deed(action, workspace, f"thing/{uuid4()}")).type for action in Action}
    paused = acted(Act(), Deed(Action.PAUSE, workspace, f"pause/{uuid4()}", run_id=uuid4()))

    assert names_of[Action.LIMIT] == names_of[Action.PAUSE] == "workspace.config.updated"
    assert names_of[Action.WORKER_DRAIN] == "worker.command.executed"
    assert names_of[Action.DEFINITION_CREATE] == "workflow.created"
    assert names_of[Action.JOB_RERUN] == names_of[Action.RUN_CANCEL] == paused.type == "operator.acted"
    assert set(names_of.values()) <= AUDIT_ACTIONS | OWN_AUDIT_ACTIONS
