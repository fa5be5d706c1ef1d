"""`runlane key list`, `rotate` and `revoke`: speak to the database, like the command that makes keys."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from runlane.cli.keys import in_transaction, settings_here
from runlane.cli.options import JsonFlag
from runlane.cli.output import Column, print_done, print_json, print_made, print_rows

if TYPE_CHECKING:
    from runlane.db import keys
    from runlane.db.pool import Connection

_COLUMNS: Final = (
    Column("ID", "id"), Column("WORKSPACE", "workspace"), Column("NAME", "name"), Column("SCOPES", "scopes"),
    Column("NETWORK", "network"),
    Column("MADE", "created_at"), Column("EXPIRES", "expires_at"), Column("LAST USED", "last_used_at"),
)  # fmt: skip

Key = Annotated[UUID, typer.Argument(help="Id of the key, from `runlane key list`.")]


def register(key_app: typer.Typer) -> None:
    """Adds the commands to those about keys."""
    key_app.command("list")(index)
    key_app.command("rotate")(rotate)
    key_app.command("revoke")(revoke)


def index(as_json: JsonFlag = False) -> None:
    """List the keys that are valid now; never a key itself."""
    from runlane.db import keys

    found = asyncio.run(in_transaction(settings_here(), keys.list_keys))
    if as_json:
        print_json({"items": found})
    else:
        print_rows(found, _COLUMNS)


def rotate(
    key: Key,
    overlap: Annotated[
        float, typer.Option("--overlap", min=0, max=720, help="Hours that the old one is still good for.")
    ] = 24.0,
    as_json: JsonFlag = False,
) -> None:
    """Make a key that may do the same, and let the old one expire."""
    from runlane.db import keys

    settings = settings_here()
    pepper = keys.check_pepper(settings.key_pepper.get_secret_value())

    async def make(conn: "Connection") -> "keys.CreatedKey":
        return await keys.rotate_key(conn, key, overlap * 3600, pepper)

    made = asyncio.run(in_transaction(settings, make))
    print_made(
        {"id": str(made.key_id), "key": made.plaintext, "replaces": str(key)},
        made.plaintext,
        f"key {made.key_id}: keep it now, it cannot be shown again; the old one ends in {overlap:g} h",
        as_json=as_json,
    )


def revoke(key: Key, as_json: JsonFlag = False) -> None:
    """Make a key worthless at once, for good."""
    from runlane.db import keys

    async def make(conn: "Connection") -> bool:
        return await keys.revoke_key(conn, key)

    is_new = asyncio.run(in_transaction(settings_here(), make))
    print_done(
        {"id": str(key), "revoked": is_new},
        f"key {key} is revoked" if is_new else f"key {key} was not valid before",
        as_json=as_json,
    )
