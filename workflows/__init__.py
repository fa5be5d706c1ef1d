"""Workflows: durable orders of effects. They hold ids and cursors, never jobs; rows are the truth."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.run import RunWorkflow
    from workflows.shard import StepShard

WORKFLOWS = [RunWorkflow, StepShard]
"""What the core worker registers."""
