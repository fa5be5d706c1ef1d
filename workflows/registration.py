"""The list of workflows. No workflow file imports it."""

from workflows.deliver import DeliverWorkflow
from workflows.fire import ScheduleFire
from workflows.run import RunWorkflow
from workflows.shard import StepShard
from workflows.sweeps import SweepWorkflow

WORKFLOWS = [RunWorkflow, StepShard, SweepWorkflow, ScheduleFire, DeliverWorkflow]
"""What the core worker registers."""
