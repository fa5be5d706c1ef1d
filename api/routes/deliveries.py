"""Deliveries: what was sent to an integration, how each attempt went, and once more by hand."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.deps import ReadIntegrations, WriteIntegrations, no_query
from api.integration_schemas import Delivery, DeliveryInFull
from api.problems import problems
from runlane.db import delivery_log
from runlane.db.engine import driver
from runlane.db.keys import Scope
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/deliveries", tags=["integrations"])

DeliveryId = Annotated[UUID, Path(description="id of a delivery")]


@router.get("/{delivery_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadIntegrations, delivery_id: DeliveryId) -> DeliveryInFull:
    """Shows one delivery. What the endpoint answered is for keys that may change integrations."""
    found = await delivery_log.get_delivery(driver(access.conn), access.workspace_id, delivery_id)
    shown = DeliveryInFull.model_validate(found)
    if access.principal.has(Scope.INTEGRATIONS_WRITE):
        return shown
    hidden = [each.model_copy(update={"excerpt": None}) for each in shown.tries]
    return shown.model_copy(update={"tries": hidden})


@router.post(
    "/{delivery_id}/replay",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def replay(access: WriteIntegrations, delivery_id: DeliveryId, body: Why | None = None) -> Delivery:
    """Has an event delivered once more, under the same id. Repeatable while it is still to be delivered."""
    act = access.act(body.reason if body else None)
    again = await delivery_log.replay(driver(access.conn), access.workspace_id, delivery_id, act)
    return Delivery.model_validate(again)
