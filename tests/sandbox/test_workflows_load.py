"""Every workflow file loads in the sandbox, with each import a decision."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.registration import WORKFLOWS

LOOP = {"workflows.dispatching", "workflows.policies"}
GUARDED = {
    "RunWorkflow": LOOP,
    "StepShard": LOOP,
    "SweepWorkflow": set[str](),
    "ScheduleFire": {"workflows.policies"},
    "DeliverWorkflow": set[str](),
}
"""Files of ours that run inside the sandbox beside the workflow's own."""

pytestmark = pytest.mark.parametrize("cls", WORKFLOWS, ids=lambda cls: cls.__name__)


@cache
def loaded_anew() -> dict[str, list[str]]:
    """Modules that the sandbox loads or wraps for each workflow, in a process that has done nothing else."""
    command = [sys.executable, "-m", "tests.sandbox.closures"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


async def test_workflow_prepares_without_unintentional_passthrough(cls: type) -> None:
    restrictions = SandboxRestrictions.default.with_import_notification_policy(
        workflow.SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | workflow.SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    runner = SandboxedWorkflowRunner(restrictions=restrictions)
    definition = workflow._Definition.must_from_class(cls)

    runner.prepare_workflow(definition)


async def test_workflow_and_what_it_shares_run_inside_the_sandbox(cls: type) -> None:
    ours = {name for name in loaded_anew()[cls.__name__] if name.split(".")[0] == "workflows"}

    assert ours == GUARDED[cls.__name__] | {"workflows", cls.__module__}


async def test_import_closure_outside_passthrough_holds_no_library(cls: type) -> None:
    foreign = {name.split(".")[0] for name in loaded_anew()[cls.__name__]} - {"workflows"}

    # of the standard library only what the sandbox wraps to refuse clocks and the like; nothing that does I/O
    assert foreign <= {"asyncio", "datetime", "uuid"}
