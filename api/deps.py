"""What routes depend on: who asks, in one transaction that sees that workspace and nothing else."""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

import structlog
from fastapi import Depends, Header, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from api.gate import principal_of
from api.resources import Resources
from runlane.db.acts import Act
from runlane.db.engine import workspace_transaction
from runlane.db.idempotency import IdempotentRequest, hash_body
from runlane.db.keys import Principal, Scope
from runlane.db.paging import MAX_LIMIT, PageRequest
from runlane.db.pool import Connection
from runlane.errors import Forbidden, Invalid
from runlane.events import Actor

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_bearer = HTTPBearer(auto_error=False, scheme_name="api key", description="`rl_…`, an API key")


@dataclass(frozen=True, slots=True)
class Access:
    """A caller inside a workspace, and the open transaction of the request.

    It commits when the route has returned and before anything is answered; an error rolls it back.
    """

    conn: AsyncConnection
    workspace_id: UUID
    principal: Principal
    traceparent: str | None = None

    @property
    def actor(self) -> Actor:
        """The caller as events name it."""
        return Actor(str(self.principal.key_id), "api_key", self.traceparent)

    def act(self, reason: str | None) -> Act:
        """What the caller does, and why."""
        return Act(self.actor, self.principal.name, reason)


@dataclass(frozen=True, slots=True)
class PlatformAccess:
    """A caller with the platform's key, and the open transaction of the request as the system role."""

    conn: Connection
    principal: Principal

    def act(self, reason: str | None) -> Act:
        """What the caller does, and why."""
        return Act(Actor(str(self.principal.key_id), "api_key"), self.principal.name, reason)


def traceparent_of(request: Request) -> str | None:
    """The trace context that the caller sent, if it is one (W3C Trace Context); its events carry it on."""
    given = request.headers.get("traceparent", "")
    return given if _TRACEPARENT.fullmatch(given) else None


def resources_of(request: Request) -> Resources:
    """What the application opened at its start."""
    resources: Resources = request.app.state.resources
    return resources


async def _admitted(
    request: Request,
    _documented: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Principal:
    principal = principal_of(request)
    structlog.contextvars.bind_contextvars(
        key_id=str(principal.key_id), workspace_id=str(principal.workspace_id)
    )
    return principal


Caller = Annotated[Principal, Depends(_admitted)]


def _access(scope: Scope) -> Callable[[Request, Principal], AsyncIterator[Access]]:
    async def open_access(request: Request, principal: Caller) -> AsyncIterator[Access]:
        principal.require(scope)
        if principal.workspace_id is None:
            raise Forbidden("a platform key has no workspace", code="key.scope")
        async with workspace_transaction(resources_of(request).engine, principal.workspace_id) as conn:
            yield Access(conn, principal.workspace_id, principal, traceparent_of(request))

    return open_access


async def _open_platform(request: Request, principal: Caller) -> AsyncIterator[PlatformAccess]:
    principal.require(Scope.PLATFORM_ADMIN)
    async with resources_of(request).system_pool.acquire() as conn, conn.transaction():
        yield PlatformAccess(conn, principal)


# Scope "function": the commit comes before the answer, so what was answered is true.
ReadTargets = Annotated[Access, Depends(_access(Scope.TARGETS_READ), scope="function")]
WriteTargets = Annotated[Access, Depends(_access(Scope.TARGETS_WRITE), scope="function")]
ReadRuns = Annotated[Access, Depends(_access(Scope.RUNS_READ), scope="function")]
WriteRuns = Annotated[Access, Depends(_access(Scope.RUNS_WRITE), scope="function")]
ReadJobs = Annotated[Access, Depends(_access(Scope.JOBS_READ), scope="function")]
WriteJobs = Annotated[Access, Depends(_access(Scope.JOBS_WRITE), scope="function")]
ReadEvents = Annotated[Access, Depends(_access(Scope.EVENTS_READ), scope="function")]
WriteEvents = Annotated[Access, Depends(_access(Scope.EVENTS_WRITE), scope="function")]
WriteSecrets = Annotated[Access, Depends(_access(Scope.SECRETS_WRITE), scope="function")]
ReadInventory = Annotated[Access, Depends(_access(Scope.INVENTORY_READ), scope="function")]
ReadNotifications = Annotated[Access, Depends(_access(Scope.NOTIFICATIONS_READ), scope="function")]
WriteNotifications = Annotated[Access, Depends(_access(Scope.NOTIFICATIONS_WRITE), scope="function")]
ReadWorkers = Annotated[Access, Depends(_access(Scope.WORKERS_READ), scope="function")]
WriteWorkers = Annotated[Access, Depends(_access(Scope.WORKERS_WRITE), scope="function")]

ReadIntegrations = Annotated[Access, Depends(_access(Scope.INTEGRATIONS_READ), scope="function")]
WriteIntegrations = Annotated[Access, Depends(_access(Scope.INTEGRATIONS_WRITE), scope="function")]

ForPlatform = Annotated[PlatformAccess, Depends(_open_platform, scope="function")]

Opened = Annotated[Resources, Depends(resources_of)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="the same request with the same key is done once and answered alike for 24 hours",
    ),
]


def keyed(access: Access, route: str, key: str | None, body: BaseModel) -> IdempotentRequest | None:
    """The request as idempotency knows it; None without a key."""
    if key is None:
        return None
    return IdempotentRequest(access.workspace_id, route, key, hash_body(body.model_dump(mode="json")))


class PageQuery(BaseModel):
    """Query of every list. A parameter that a list does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="rows of a page")
    after: str | None = Field(None, max_length=2000, description="`next` of the page before")
    sort: str | None = Field(None, max_length=50, description="an order of the list; `-` for descending")

    @property
    def page(self) -> PageRequest:
        """The page that is asked for."""
        return PageRequest(self.limit, self.after, self.sort)


Paging = Annotated[PageQuery, Query()]


def no_query(request: Request) -> None:
    """Refuses any query parameter: for routes that have none.

    Raises:
        Invalid: `request.invalid`.
    """
    if request.query_params:
        fields = {name[:64]: "unknown parameter" for name in request.query_params}
        raise Invalid("the request is not valid", code="request.invalid", fields=fields)
