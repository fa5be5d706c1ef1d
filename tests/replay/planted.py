"""The run workflow with faults planted: it orders one effect more, before the others."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from runlane import names
    from workflows.run import RUN_STATUS, RunInput, RunOutcome, RunWorkflow


@workflow.defn(name=names.RUN_WORKFLOW)
class HastyRunWorkflow(RunWorkflow):
    """Shows a status before it has read the run."""

    @workflow.init
    def __init__(self, request: RunInput) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: RunInput) -> RunOutcome:
        """As the run workflow."""
        workflow.upsert_search_attributes([RUN_STATUS.value_set("running")])
        return await super().run(request)


@workflow.defn(name=names.RUN_WORKFLOW)
class PatchedRunWorkflow(RunWorkflow):
    """Waits a moment first, behind a patch: right for old histories, and a path that none has taken."""

    @workflow.init
    def __init__(self, request: RunInput) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: RunInput) -> RunOutcome:
        """As the run workflow."""
        if workflow.patched("planted"):
            await workflow.sleep(0.01, summary="planted")
        return await super().run(request)
