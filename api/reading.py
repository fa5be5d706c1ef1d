"""Reads that take longer than a transaction should: the route opens its own, as short as it can."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncConnection

from api.deps import Caller, Opened
from api.resources import Resources
from runlane.db.engine import workspace_transaction
from runlane.db.keys import Scope
from runlane.errors import Forbidden


@dataclass(frozen=True, slots=True)
class JobReader:
    """A caller who may read jobs of a workspace."""

    resources: Resources
    workspace_id: UUID

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """One transaction that sees the rows of the caller's workspace."""
        return workspace_transaction(self.resources.engine, self.workspace_id)


def _job_reader(principal: Caller, opened: Opened) -> JobReader:
    principal.require(Scope.JOBS_READ)
    if principal.workspace_id is None:
        raise Forbidden("a platform key has no workspace", code="key.scope")
    return JobReader(opened, principal.workspace_id)


JobReading = Annotated[JobReader, Depends(_job_reader)]
