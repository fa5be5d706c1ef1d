"""Prints, as JSON, which modules the sandbox loads or wraps for each workflow, not passing them through."""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from types import ModuleType

from temporalio import workflow
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from workflows.registration import WORKFLOWS


@dataclass(frozen=True)
class _Recording(SandboxedWorkflowRunner):
    """A sandbox that remembers which modules the workflow sees."""

    seen: dict[str, ModuleType] = field(default_factory=dict)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        # the sandbox names no public way to its modules
        self.seen.update(instance.importer.new_modules)  # type: ignore[attr-defined]
        return instance


def loaded_anew(cls: type) -> list[str]:
    """Names of these modules for one workflow."""
    runner = _Recording()
    runner.prepare_workflow(workflow._Definition.must_from_class(cls))
    return sorted(
        name
        for name, module in runner.seen.items()
        if module is not sys.modules.get(name) and name != "__main__"
    )


async def main() -> None:
    """A workflow is made in a running loop."""
    sys.stdout.write(json.dumps({cls.__name__: loaded_anew(cls) for cls in WORKFLOWS}))


if __name__ == "__main__":
    asyncio.run(main())
