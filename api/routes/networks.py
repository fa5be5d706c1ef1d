"""Internal networks: where targets are that only workers bound to them may scan."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field, StringConstraints

from api.action_schemas import Why
from api.deps import Paging, ReadTargets, WriteWorkers, no_query
from api.etags import IfMatch, etag, version_in
from api.problems import problems
from api.schemas import Answer, PageOf, Printable, Request
from runlane.db import networks
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound, Stale, Unconditional
from runlane.tools.cidrs import MAX_CIDRS

router = APIRouter(prefix="/networks", tags=["networks"])

NetworkId = Annotated[UUID, Path(description="id of an internal network")]
NetworkName = Annotated[Printable, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
Cidrs = Annotated[
    list[Annotated[Printable, StringConstraints(max_length=50)]],
    Field(min_length=1, max_length=MAX_CIDRS, description="all addresses that workers of it may contact"),
]


class NewNetwork(Request):
    """A network to be made."""

    name: NetworkName
    cidrs: Cidrs = Field(examples=[["10.1.0.0/16"]])


class EditedNetwork(Request):
    """What is to be changed; what is left out stays."""

    name: NetworkName | None = None
    cidrs: Cidrs | None = None


class Network(Answer):
    """An internal network."""

    id: UUID
    name: str
    cidrs: list[str]
    version: int = Field(description="counts its changes; as `ETag` it is what `If-Match` says")
    created_by: str | None
    created_at: datetime


@router.get("")
async def index(access: ReadTargets, query: Paging) -> PageOf[Network]:
    """Lists networks; sorts by `created_at` or `name`."""
    page = await networks.list_networks(access.conn, access.workspace_id, query.page)
    return PageOf[Network].model_validate(page, from_attributes=True)


@router.post("", status_code=201, dependencies=[Depends(no_query)], responses=problems(Conflict))
async def create(access: WriteWorkers, body: NewNetwork, response: Response) -> Network:
    """Makes a network. Its CIDRs do not overlap; those of another network may be the same."""
    made = await networks.create_network(
        driver(access.conn), access.workspace_id, body.name, body.cidrs, access.act(None)
    )
    return _tagged(Network.model_validate(made), response)


@router.get("/{network_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadTargets, network_id: NetworkId, response: Response) -> Network:
    """Shows one network."""
    found = await networks.get_network(driver(access.conn), access.workspace_id, network_id)
    return _tagged(Network.model_validate(found), response)


@router.patch(
    "/{network_id}",
    dependencies=[Depends(no_query)],
    responses=problems(NotFound, Conflict, Stale, Unconditional),
)
async def edit(
    access: WriteWorkers,
    network_id: NetworkId,
    body: EditedNetwork,
    response: Response,
    if_match: IfMatch = None,
) -> Network:
    """Renames a network, or gives it other CIDRs for what begins from then on. `If-Match` is its `ETag`."""
    wanted = networks.NetworkEdit(version_in(if_match), body.name, body.cidrs)
    done = await networks.edit_network(
        driver(access.conn), access.workspace_id, network_id, wanted, access.act(None)
    )
    return _tagged(Network.model_validate(done), response)


@router.post("/{network_id}/delete", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def delete(access: WriteWorkers, network_id: NetworkId, body: Why | None = None) -> Network:
    """Deletes a network that no target, worker, valid key or rate refers to."""
    act = access.act(body.reason if body else None)
    done = await networks.delete_network(driver(access.conn), access.workspace_id, network_id, act)
    return Network.model_validate(done)


def _tagged(network: Network, response: Response) -> Network:
    response.headers["ETag"] = etag(network.version)
    return network
