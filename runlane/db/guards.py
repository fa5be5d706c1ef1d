"""SQL guards generated from the state machines: no statement spells out a list of states of its own."""

from enum import StrEnum
from typing import Final, TypeVar

from runlane.jobs import JOBS, RUNS, STEPS, JobStatus, JobVerb, Machine, RunVerb, StepVerb

StatusT = TypeVar("StatusT", bound=StrEnum)
VerbT = TypeVar("VerbT", bound=StrEnum)


def _sources(machine: Machine[StatusT, VerbT], verb: VerbT) -> str:
    return ", ".join(f"'{status}'" for status in machine.sources_of(verb))


def job_may(verb: JobVerb, alias: str = "jobs") -> str:
    """`jobs.status IN (...)`: the states from which a job may take `verb`."""
    return f"{alias}.status IN ({_sources(JOBS, verb)})"


def step_may(verb: StepVerb, alias: str = "run_steps") -> str:
    """`run_steps.status IN (...)`: the states from which a step may take `verb`."""
    return f"{alias}.status IN ({_sources(STEPS, verb)})"


def run_may(verb: RunVerb, alias: str = "job_histories") -> str:
    """`job_histories.status IN (...)`: the states from which a run may take `verb`."""
    return f"{alias}.status IN ({_sources(RUNS, verb)})"


def is_rerun(alias: str) -> str:
    """Whether a later generation of the job stands for it in its step: then its own end does not count."""
    return f"""EXISTS (
  SELECT FROM jobs later
  WHERE later.run_id = {alias}.run_id AND later.step_id = {alias}.step_id
    AND later.subject_id = {alias}.subject_id AND later.ordinal = {alias}.ordinal
    AND later.generation > {alias}.generation)"""


PENDING: Final = f"'{JobStatus.PENDING}'"
IN_PROGRESS: Final = f"'{JobStatus.IN_PROGRESS}'"
COMPLETED: Final = f"'{JobStatus.COMPLETED}'"
FAILED: Final = f"'{JobStatus.FAILED}'"
"""States of a job as SQL literals, for statements that name one state and ask for no verb."""

LIVE_JOB: Final = "completed_at IS NULL"
"""Pending or in progress, spelt as in the partial indexes of live rows; the constraint makes it the same.

Statements that look for live rows say it, so that the planner finds those indexes. Statements that go by id
say only their guard: see the migration of `jobs`.
"""
