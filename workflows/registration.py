"""The list of workflows. No workflow file imports it."""

from workflows.run import RunWorkflow
from workflows.shard import StepShard
from workflows.sweeps import SweepWorkflow

WORKFLOWS = [RunWorkflow, StepShard, SweepWorkflow]
"""What the core worker registers."""
