"""Connectors: tools that come as an image, of a workspace and of the platform."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api.action_schemas import Why
from api.connector_schemas import Connector, ConnectorChanged, Connectors, NewConnector
from api.deps import ForPlatform, ReadRuns, WriteRuns, no_query
from api.problems import problems
from runlane.connectors import Manifest, load_manifest, read_manifest
from runlane.db import connectors
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(tags=["connectors"])

Slug = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9-]{1,63}$", description="name of a connector, as steps use it")
]


@router.get("/connectors", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Connectors:
    """Lists the connectors that steps of the workspace may name, those of the platform included."""
    found = await connectors.list_connectors(driver(access.conn), access.workspace_id)
    return Connectors.model_validate({"items": found})


@router.post("/connectors", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def add(access: WriteRuns, body: NewConnector) -> ConnectorChanged:
    """Adds a connector of the workspace, or puts a new manifest in place of its old one.

    The same once more changes nothing. Only the workspace's own workers run it, and only where the host's
    operator has allowed its digest.
    """
    wanted = connectors.NewConnector(access.workspace_id, _manifest(body))
    row = await connectors.add_connector(driver(access.conn), wanted, access.act(body.reason))
    return ConnectorChanged.model_validate(row)


@router.get("/connectors/{slug}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadRuns, slug: Slug) -> Connector:
    """Shows the connector that steps of the workspace mean by a name."""
    row = await connectors.show_connector(driver(access.conn), access.workspace_id, slug)
    return Connector.model_validate(row)


@router.post("/connectors/{slug}/disable", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def disable(access: WriteRuns, slug: Slug, body: Why | None = None) -> ConnectorChanged:
    """Switches a connector of the workspace off: nothing new of it is begun, what runs is finished."""
    act = access.act(body.reason if body else None)
    row = await connectors.switch_connector(driver(access.conn), access.workspace_id, slug, act, is_on=False)
    return ConnectorChanged.model_validate(row)


@router.post("/connectors/{slug}/enable", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def enable(access: WriteRuns, slug: Slug, body: Why | None = None) -> ConnectorChanged:
    """Switches a connector of the workspace on again: jobs that waited go on."""
    act = access.act(body.reason if body else None)
    row = await connectors.switch_connector(driver(access.conn), access.workspace_id, slug, act, is_on=True)
    return ConnectorChanged.model_validate(row)


@router.get("/platform/connectors", dependencies=[Depends(no_query)])
async def platform_index(access: ForPlatform) -> Connectors:
    """Lists the connectors that every workspace has; needs a platform key."""
    return Connectors.model_validate({"items": await connectors.list_connectors(access.conn, None)})


@router.post("/platform/connectors", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def platform_add(access: ForPlatform, body: NewConnector) -> ConnectorChanged:
    """Adds a connector for every workspace, as above. Needs a platform key."""
    wanted = connectors.NewConnector(None, _manifest(body))
    row = await connectors.add_connector(access.conn, wanted, access.act(body.reason))
    return ConnectorChanged.model_validate(row)


@router.post(
    "/platform/connectors/{slug}/disable", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def platform_disable(access: ForPlatform, slug: Slug, body: Why | None = None) -> ConnectorChanged:
    """Switches a connector of the platform off, in every workspace. Needs a platform key."""
    act = access.act(body.reason if body else None)
    row = await connectors.switch_connector(access.conn, None, slug, act, is_on=False)
    return ConnectorChanged.model_validate(row)


@router.post(
    "/platform/connectors/{slug}/enable", dependencies=[Depends(no_query)], responses=problems(NotFound)
)
async def platform_enable(access: ForPlatform, slug: Slug, body: Why | None = None) -> ConnectorChanged:
    """Switches a connector of the platform on again. Needs a platform key."""
    act = access.act(body.reason if body else None)
    row = await connectors.switch_connector(access.conn, None, slug, act, is_on=True)
    return ConnectorChanged.model_validate(row)


def _manifest(body: NewConnector) -> Manifest:
    source = body.manifest
    return read_manifest(load_manifest(source) if isinstance(source, str) else source)
