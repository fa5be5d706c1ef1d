"""The values that claimed jobs need: added to the answer of the claim, in its transaction."""

from collections.abc import Collection
from dataclasses import replace

from runlane.db.claims import ClaimAnswer, ClaimRequest
from runlane.db.pool import Connection
from runlane.db.secrets import reveal
from runlane.db.staging import Delivery, StagedMember, stage
from runlane.errors import NotFound
from runlane.jobs import Outcome
from runlane.keyring import Keyring
from runlane.secret_refs import names_in


async def with_secrets(
    conn: Connection, keyring: Keyring, request: ClaimRequest, answer: ClaimAnswer
) -> ClaimAnswer:
    """The answer with the values that its options refer to; no statement if they refer to none.

    If a secret was removed since the run began, the jobs fail here and now, as `fatal` with the code
    `secret.unknown`, and nothing is answered.

    Raises:
        NotFound: `dispatch.not_found`, the run was deleted in between.
        Unavailable: `secret.no_key`; the claim is undone, and the jobs wait uncharged.
        Defect: `secret.broken`.
    """
    wanted = names_in(answer.options)
    if not (wanted and answer.jobs):
        return answer
    workspace_id = await conn.fetchval(
        "SELECT workspace_id FROM dispatches WHERE id = $1", request.dispatch_id
    )
    if workspace_id is None:
        raise NotFound("no such dispatch", code="dispatch.not_found")
    revealed = await reveal(conn, keyring, workspace_id, wanted)
    if not revealed.missing:
        return replace(answer, secrets=revealed.values)
    await stage(conn, _failed(request, answer, revealed.missing))
    return ClaimAnswer(request.dispatch_id)


def _failed(request: ClaimRequest, answer: ClaimAnswer, missing: Collection[str]) -> Delivery:
    error = f"secret.unknown: not there any more: {', '.join(missing)}"
    members = [
        StagedMember(
            job.job_id, job.attempt, Outcome.FATAL, error, complete=False, reachable=False, coverage={}
        )
        for job in answer.jobs
    ]
    return Delivery(request.worker_id, request.incarnation, request.dispatch_id, members)
