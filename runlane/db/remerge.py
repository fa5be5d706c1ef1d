"""Re-merge: the result of a job whose merge failed for good is merged anew, without scanning again.

It is a re-run whose first attempt is born staged with the kept result, so only the merge runs. The rules of
re-runs hold: the old job stays as it ended, the new one is in the open run or in a run of its own.
"""

from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.pool import Connection, Record
from runlane.db.reruns import Rerun, rerun_job
from runlane.db.runs import run_started
from runlane.errors import Conflict, NotFound
from runlane.jobs import JOBS, RUNS, JobStatus, JobVerb, Outcome, RunVerb

REMERGE_KEY: Final = "remerge"
"""Claim key of attempts that no worker made."""

MERGE_REASON: Final = "merge"
"""Reason of a job whose merge failed for good, as `judge` gives it."""

# Before the job: a re-run and a sweep hold the run's row when they come to the job.
_HOLD_RUN: Final = """
SELECT FROM job_histories
WHERE workspace_id = $1 AND id = (SELECT run_id FROM jobs WHERE workspace_id = $1 AND id = $2)
FOR NO KEY UPDATE
"""

_KEPT: Final = """
SELECT j.status, j.reason, a.attempt, a.result_id, r.id IS NOT NULL AS is_kept,
       EXISTS (SELECT FROM job_attempts b JOIN jobs n ON n.id = b.job_id
               WHERE b.result_id = a.result_id AND n.retry_of = j.id) AS is_remerged
FROM jobs j
LEFT JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt
LEFT JOIN job_results r ON r.id = a.result_id
WHERE j.workspace_id = $1 AND j.id = $2
FOR UPDATE OF j
"""

_DISPATCH: Final = f"""
INSERT INTO dispatches (workspace_id, run_id, step_id, workflow_id, workflow_run_id, call_number, task_queue,
                        priority, size)
SELECT workspace_id, run_id, step_id, '{names.RUN_PREFIX}' || run_id, '', 0, '{names.RESULT_QUEUE}',
       priority, 1
FROM jobs WHERE id = $1
RETURNING id
"""

_BEAR: Final = f"""
UPDATE jobs SET status = '{JOBS.target_of(JobVerb.CLAIM)}', attempt = 1, dispatch_id = $2,
  worker_id = a.worker_id, picked_at = clock_timestamp()
FROM job_attempts a
WHERE jobs.id = $1 AND a.job_id = $3 AND a.attempt = $4
"""

_ATTEMPT: Final = f"""
INSERT INTO job_attempts (job_id, attempt, workspace_id, dispatch_id, worker_id, incarnation, claim_key,
                          observed_at, staged_at, staged_outcome, coverage, is_complete, is_reachable,
                          result_id, body_job_id, body_attempt, argv, tool_version)
SELECT $1, 1, workspace_id, $2, worker_id, incarnation, '{REMERGE_KEY}', observed_at, clock_timestamp(),
       '{Outcome.COMPLETED}', coverage, is_complete, is_reachable, result_id, coalesce(body_job_id, job_id),
       coalesce(body_attempt, attempt), argv, tool_version
FROM job_attempts WHERE job_id = $3 AND attempt = $4
"""

# One delivery holds results of several jobs: it is kept while the merge of another one may be wanted.
_UNKEEP: Final = f"""
UPDATE job_results r SET kept = false
WHERE r.id = $1 AND NOT EXISTS (
  SELECT FROM job_attempts a
  WHERE a.result_id = r.id AND a.outcome = '{Outcome.MERGE_FAILED}' AND a.job_id <> $2
    AND NOT EXISTS (SELECT FROM job_attempts b JOIN jobs n ON n.id = b.job_id
                    WHERE b.result_id = r.id AND n.retry_of = a.job_id))
"""

_START: Final = f"""
UPDATE job_histories SET status = '{RUNS.target_of(RunVerb.START)}', started_at = clock_timestamp()
WHERE id = $1
RETURNING workspace_id, name, kind, hops
"""


async def remerge_job(conn: Connection, workspace_id: UUID, job_id: UUID, act: Act) -> Rerun:
    """Merges the kept result of a failed job anew, in one transaction of the caller.

    Raises:
        NotFound: `job.not_found`.
        Conflict: `job.not_mergeable`, it did not fail at its merge; `job.result_gone`, its result was not
            kept; `job.remerged`, that was asked for before; `job.rerun_open`, a re-run has not ended.
    """
    await conn.execute(_HOLD_RUN, workspace_id, job_id)
    kept = await conn.fetchrow(_KEPT, workspace_id, job_id)
    if kept is None:
        raise NotFound("no such job", code="job.not_found")
    _require_mergeable(kept)
    made = await rerun_job(conn, workspace_id, job_id, act, is_sending=False)
    if not made.is_new or made.job_id is None:
        raise Conflict("a re-run of the job has not ended", code="job.rerun_open")
    dispatch_id = await conn.fetchval(_DISPATCH, made.job_id)
    await conn.execute(_BEAR, made.job_id, dispatch_id, job_id, kept["attempt"])
    await conn.execute(_ATTEMPT, made.job_id, dispatch_id, job_id, kept["attempt"])
    await conn.execute(_UNKEEP, kept["result_id"], job_id)
    if made.started is not None:
        # Adopted like a run that lost its workflow: then what it has in progress is settled first.
        row = await conn.fetchrow(_START, made.run_id)
        await outbox.insert(conn, [run_started(made.run_id, row)] if row is not None else [])
    await outbox.insert(conn, [acted(act, _deed(workspace_id, job_id, made))])
    return made


def _require_mergeable(kept: Record) -> None:
    if kept["status"] != JobStatus.FAILED or kept["reason"] != MERGE_REASON:
        raise Conflict("the job did not fail at its merge", code="job.not_mergeable")
    if kept["is_remerged"]:
        raise Conflict("its result is merged anew already, by a later job", code="job.remerged")
    if not kept["is_kept"]:
        raise Conflict("its result is gone: run the job again", code="job.result_gone")


def _deed(workspace_id: UUID, job_id: UUID, made: Rerun) -> Deed:
    return Deed(
        Action.JOB_REMERGE,
        workspace_id,
        names.job_subject(job_id),
        ordinal=str(made.job_id),
        run_id=made.run_id,
        job_id=job_id,
        value=str(made.job_id),
    )
