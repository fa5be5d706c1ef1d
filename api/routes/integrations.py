"""Integrations: endpoints outside of the platform that are told of events."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response
from pydantic import SecretStr

from api.action_schemas import Why
from api.deps import Access, Opened, Paging, ReadIntegrations, WriteIntegrations, no_query
from api.etags import IfMatch, etag, version_in
from api.integration_schemas import (
    ConnectedIntegration,
    Delivery,
    EditedIntegration,
    Integration,
    NewIntegration,
    Replay,
    ReplayedDeliveries,
)
from api.problems import problems
from api.schemas import PageOf
from runlane.db import delivery_log, integrations
from runlane.db.engine import driver
from runlane.db.integration_secrets import Place
from runlane.errors import Conflict, NotFound, Stale, Unconditional
from runlane.integrations import Kind
from runlane.outbound.signing import new_key

router = APIRouter(prefix="/integrations", tags=["integrations"])

IntegrationId = Annotated[UUID, Path(description="id of an integration")]


@router.get("")
async def index(access: ReadIntegrations, query: Paging) -> PageOf[Integration]:
    """Lists integrations; sorts by `created_at` or `name`."""
    page = await integrations.list_integrations(access.conn, access.workspace_id, query.page)
    return PageOf[Integration].model_validate(page, from_attributes=True)


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(Conflict))
async def connect(
    access: WriteIntegrations, opened: Opened, body: NewIntegration, response: Response
) -> ConnectedIntegration:
    """Connects an endpoint. The key that its deliveries are signed with is shown here and never again."""
    secrets = _plain(body.secrets)
    opened.transports[body.kind].validate(body.config, secrets)
    wanted = integrations.NewIntegration(
        access.workspace_id,
        body.kind,
        body.name,
        body.config,
        secrets,
        body.events,
        body.least_severity,
        body.is_ordered,
        new_key() if body.kind is Kind.WEBHOOK else None,
    )
    act = access.act(body.reason)
    made = await integrations.connect(driver(access.conn), wanted, opened.keyring, act)
    return _shown(made, wanted.signing_key, response)


@router.get("/{integration_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadIntegrations, integration_id: IntegrationId, response: Response) -> Integration:
    """Shows one integration."""
    found = await integrations.get_integration(driver(access.conn), _place(access, integration_id))
    return _tagged(found, response)


@router.patch(
    "/{integration_id}",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict, Stale, Unconditional),
)
async def edit(
    access: WriteIntegrations,
    opened: Opened,
    integration_id: IntegrationId,
    body: EditedIntegration,
    response: Response,
    if_match: IfMatch = None,
) -> Integration:
    """Changes an integration, for what is delivered from then on. `If-Match` is its `ETag`."""
    place, secrets = _place(access, integration_id), None if body.secrets is None else _plain(body.secrets)
    found = await integrations.get_integration(driver(access.conn), place)
    config = body.config if body.config is not None else found["config"]
    opened.transports[Kind(str(found["kind"]))].validate(_mapping(config), secrets)
    wanted = integrations.Edit(
        version_in(if_match),
        body.name,
        body.config,
        secrets,
        body.events,
        body.least_severity,
        body.is_ordered,
    )
    act = access.act(None)
    return _tagged(await integrations.edit(driver(access.conn), place, wanted, opened.keyring, act), response)


@router.post("/{integration_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def disconnect(
    access: WriteIntegrations, integration_id: IntegrationId, body: Why | None = None
) -> Integration:
    """Disconnects an integration: its secrets are removed, what was still to be delivered is skipped."""
    act = access.act(body.reason if body else None)
    done = await integrations.disconnect(driver(access.conn), _place(access, integration_id), act)
    return Integration.model_validate(done)


@router.post("/{integration_id}/disable", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def disable(
    access: WriteIntegrations, integration_id: IntegrationId, body: Why | None = None
) -> Integration:
    """Switches an integration off: what it would get is noted as skipped. Repeatable."""
    act = access.act(body.reason if body else None)
    done = await integrations.disable(driver(access.conn), _place(access, integration_id), act)
    return Integration.model_validate(done)


@router.post("/{integration_id}/enable", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def enable(
    access: WriteIntegrations, integration_id: IntegrationId, body: Why | None = None
) -> Integration:
    """Switches an integration on: it gets one delivery at a time until it accepts one. Repeatable."""
    act = access.act(body.reason if body else None)
    done = await integrations.enable(driver(access.conn), _place(access, integration_id), act)
    return Integration.model_validate(done)


@router.post(
    "/{integration_id}/rotate", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict)
)
async def rotate(
    access: WriteIntegrations, opened: Opened, integration_id: IntegrationId, response: Response
) -> ConnectedIntegration:
    """Gives a webhook another key to sign with; the one before signs along for 24 hours."""
    place, key, act = _place(access, integration_id), new_key(), access.act(None)
    done = await integrations.rotate_signing(driver(access.conn), place, key, opened.keyring, act)
    return _shown(done, key, response)


@router.post(
    "/{integration_id}/test",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def send_test(access: WriteIntegrations, integration_id: IntegrationId) -> Delivery:
    """Sends a test, which is no event; what became of it is shown by its delivery. One attempt."""
    sent = await delivery_log.send_test(driver(access.conn), _place(access, integration_id))
    return Delivery.model_validate(sent)


@router.post(
    "/{integration_id}/replay",
    status_code=202,
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict),
)
async def replay(
    access: WriteIntegrations, integration_id: IntegrationId, body: Replay
) -> ReplayedDeliveries:
    """Has what was made since a time delivered once more, oldest first, under the same ids."""
    chosen = delivery_log.Chosen(body.since, body.state)
    place, act = _place(access, integration_id), access.act(body.reason)
    done = await delivery_log.replay_since(driver(access.conn), place, chosen, act)
    return ReplayedDeliveries(deliveries=done.deliveries, has_more=done.has_more)


@router.get("/{integration_id}/deliveries", responses=problems(NotFound))
async def deliveries(
    access: ReadIntegrations, integration_id: IntegrationId, query: Paging
) -> PageOf[Delivery]:
    """Lists what was delivered to an integration, or is to be; sorts by `created_at`."""
    place = _place(access, integration_id)
    page = await delivery_log.list_deliveries(access.conn, place, query.page)
    return PageOf[Delivery].model_validate(page, from_attributes=True)


def _place(access: Access, integration_id: UUID) -> Place:
    return Place(access.workspace_id, integration_id)


def _plain(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _tagged(row: Mapping[str, object], response: Response) -> Integration:
    shown = Integration.model_validate(row)
    response.headers["ETag"] = etag(shown.version)
    return shown


def _shown(row: Mapping[str, object], key: str | None, response: Response) -> ConnectedIntegration:
    shown = ConnectedIntegration.model_validate({**row, "signing_key": key})
    response.headers["ETag"] = etag(shown.version)
    response.headers["Cache-Control"] = "no-store"
    return shown
