"""Secrets: set and removed, never read back."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path
from pydantic import AfterValidator, Field, SecretStr

from api.action_schemas import Why
from api.deps import ForPlatform, Opened, ReadRuns, WriteSecrets, no_query
from api.problems import problems
from api.schemas import Answer
from runlane.db import integration_secrets, secrets
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound
from runlane.secret_refs import MAX_SECRET_NAME

MIN_VALUE = 8
"""Shorter values cannot be told from ordinary words when what a tool says is cleaned of them."""

MAX_VALUE = 8_192

router = APIRouter(tags=["secrets"])

SecretName = Annotated[
    str,
    Path(
        min_length=1, max_length=MAX_SECRET_NAME, pattern=r"^[A-Za-z0-9._-]+$", description="name of a secret"
    ),
]


def _storable(value: SecretStr) -> SecretStr:
    if "\0" in value.get_secret_value():
        raise ValueError("a text without NUL is required")
    return value


class NewValue(Why):
    """The value of a secret."""

    value: Annotated[SecretStr, AfterValidator(_storable)] = Field(
        min_length=MIN_VALUE, max_length=MAX_VALUE, description="what tools are given; it is never shown"
    )


class Secret(Answer):
    """A secret without its value."""

    id: UUID
    name: str
    key_id: str = Field(description="which key it is encrypted with")
    created_at: datetime
    rotated_at: datetime | None = Field(description="when its value was replaced")


class Secrets(Answer):
    """Secrets of a workspace."""

    items: list[Secret]


class SecretsRotated(Answer):
    """What a rotation of the keys of secrets did."""

    key_id: str
    rotated: int


@router.get("/secrets", dependencies=[Depends(no_query)])
async def index(access: ReadRuns) -> Secrets:
    """Lists the names of the workspace's secrets."""
    found = await secrets.list_secrets(driver(access.conn), access.workspace_id)
    return Secrets.model_validate({"items": found})


@router.put("/secrets/{name}", dependencies=[Depends(no_query)], responses=problems(Conflict))
async def put(access: WriteSecrets, opened: Opened, name: SecretName, body: NewValue) -> Secret:
    """Stores a value under a name, in place of the one that was there. Runs refer to it by that name."""
    wanted = secrets.NewSecret(access.workspace_id, name, body.value.get_secret_value())
    act = access.act(body.reason)
    return Secret.model_validate(await secrets.set_secret(driver(access.conn), wanted, opened.keyring, act))


@router.post("/secrets/{name}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def remove(access: WriteSecrets, name: SecretName, body: Why | None = None) -> Secret:
    """Removes a secret; jobs that refer to it fail when they are claimed."""
    act = access.act(body.reason if body else None)
    row = await secrets.remove_secret(driver(access.conn), access.workspace_id, name, act)
    return Secret.model_validate(row)


@router.post("/platform/secrets/rotate", dependencies=[Depends(no_query)])
async def rotate(access: ForPlatform, opened: Opened) -> SecretsRotated:
    """Encrypts every secret that has an older key with the newest one. Needs a platform key; repeatable."""
    rotated = await secrets.rotate(access.conn, opened.keyring)
    rotated += await integration_secrets.rotate(access.conn, opened.keyring)
    return SecretsRotated(key_id=opened.keyring.newest, rotated=rotated)
