"""`runlane worker revoke`: speaks to the database, like the commands that make credentials."""

import asyncio
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from runlane.cli.keys import in_transaction, settings_here
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import print_done

if TYPE_CHECKING:
    from runlane.db.pool import Connection


def register(worker_app: typer.Typer) -> None:
    """Adds the command to those about workers."""
    worker_app.command("revoke")(revoke)


def revoke(
    worker: Annotated[UUID, typer.Argument(help="Id of the worker, from `runlane worker list`.")],
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a scan worker's credential worthless, for good. Its jobs go to other workers."""
    from runlane.db.acts import Act
    from runlane.db.revoking import revoke_worker

    async def make(conn: "Connection") -> bool:
        return await revoke_worker(conn, worker, Act(reason=reason))

    is_new = asyncio.run(in_transaction(settings_here(), make))
    print_done(
        {"id": str(worker), "revoked": is_new},
        f"worker {worker} is revoked" if is_new else f"worker {worker} was revoked before",
        as_json=as_json,
    )
