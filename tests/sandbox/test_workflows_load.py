"""Every workflow file loads in the sandbox, with each import a decision."""

import pytest
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows import WORKFLOWS


@pytest.mark.parametrize("cls", WORKFLOWS, ids=lambda cls: cls.__name__)
async def test_workflow_prepares_without_unintentional_passthrough(cls: type) -> None:
    restrictions = SandboxRestrictions.default.with_import_notification_policy(
        workflow.SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | workflow.SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    runner = SandboxedWorkflowRunner(restrictions=restrictions)
    definition = workflow._Definition.must_from_class(cls)

    runner.prepare_workflow(definition)
