"""Every workflow file loads in the sandbox, with each import a decision."""

import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest
from temporalio import workflow
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
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


@dataclass(frozen=True)
class _Recording(SandboxedWorkflowRunner):
    """A sandbox that remembers which modules the workflow sees."""

    seen: dict[str, ModuleType] = field(default_factory=dict)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        # the sandbox names no public way to its modules
        self.seen.update(instance.importer.new_modules)  # type: ignore[attr-defined]
        return instance


def loaded_anew(cls: type) -> set[str]:
    """Names of the modules that the sandbox loads or wraps for a workflow instead of passing them through."""
    runner = _Recording()
    runner.prepare_workflow(workflow._Definition.must_from_class(cls))
    return {
        name
        for name, module in runner.seen.items()
        if module is not sys.modules.get(name) and name != "__main__"
    }


async def test_workflow_prepares_without_unintentional_passthrough(cls: type) -> None:
    restrictions = SandboxRestrictions.default.with_import_notification_policy(
        workflow.SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | workflow.SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    runner = SandboxedWorkflowRunner(restrictions=restrictions)
    definition = workflow._Definition.must_from_class(cls)

    runner.prepare_workflow(definition)


async def test_workflow_and_what_it_shares_run_inside_the_sandbox(cls: type) -> None:
    ours = {name for name in loaded_anew(cls) if name.split(".")[0] == "workflows"}

    assert ours == GUARDED[cls.__name__] | {"workflows", cls.__module__}


async def test_import_closure_outside_passthrough_holds_no_library(cls: type) -> None:
    foreign = {name.split(".")[0] for name in loaded_anew(cls)} - {"workflows"}

    # of the standard library only what the sandbox wraps to refuse clocks and the like; nothing that does I/O
    assert foreign <= {"asyncio", "datetime", "uuid"}
