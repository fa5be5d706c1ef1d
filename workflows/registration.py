"""The list of workflows. No workflow file imports it."""

from workflows.run import RunWorkflow
from workflows.shard import StepShard

WORKFLOWS = [RunWorkflow, StepShard]
"""What the core worker registers."""
