"""Workspaces and keys. These commands speak to the database: whoever holds its address may make keys."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag
from runlane.cli.output import print_fields, print_json, print_made
from runlane.cli.profile import state_dir

if TYPE_CHECKING:
    from runlane.db.pool import Connection
    from runlane.settings import Settings

key_app = typer.Typer(no_args_is_help=True, help="API keys.")
workspace_app = typer.Typer(no_args_is_help=True, help="Workspaces.")

MadeT = TypeVar("MadeT")


@key_app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    workspace: Annotated[str, typer.Option("--workspace", "-w", help="Name or id.")] = "default",
    platform: Annotated[
        bool, typer.Option("--platform", help="Of no workspace: maintenance, or what --scope says.")
    ] = False,
    scope: Annotated[list[str] | None, typer.Option("--scope", help="May be repeated; default: all.")] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", help="Of an internal network: it enrols workers there, and nothing else."),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="Days until it expires.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key. It is shown once and kept nowhere."""
    if network is not None and platform:
        raise CommandError("a network belongs to a workspace", ExitCode.USAGE)
    from runlane.db import keys, networks, workspaces

    settings = settings_here()
    pepper = keys.check_pepper(settings.key_pepper.get_secret_value())
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None

    async def make(conn: "Connection") -> keys.CreatedKey:
        workspace_id = None if platform else await workspaces.find_workspace(conn, workspace)
        network_id = None
        if network is not None and workspace_id is not None:
            network_id = await networks.keep_network(conn, workspace_id, network)
        usual = keys.Scope.PLATFORM_ADMIN if platform else keys.ALL_SCOPES
        scopes = scope or [usual if network is None else keys.Scope.WORKER_JOIN]
        new = keys.NewKey(name, workspace_id, scopes, expires_at, network_id)
        return await keys.create_key(conn, new, pepper)

    made = asyncio.run(in_transaction(settings, make))
    print_made(
        {"id": str(made.key_id), "key": made.plaintext},
        made.plaintext,
        f"key {made.key_id}: keep it now, it cannot be shown again",
        as_json=as_json,
    )


@workspace_app.command("create")
def create_workspace(
    name: str,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Network that may be scanned besides public addresses."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a workspace."""
    from runlane.db import workspaces

    settings = settings_here()

    async def make(conn: "Connection") -> str:
        return str(await workspaces.create_workspace(conn, name, allow or ()))

    workspace_id = asyncio.run(in_transaction(settings, make))
    print_made(
        {"id": workspace_id, "name": name},
        workspace_id,
        f"next: runlane key create --workspace {workspace_id} 'first key'",
        as_json=as_json,
    )


@workspace_app.command("set")
def set_workspace(
    name: Annotated[str, typer.Argument(help="Name or id.")],
    allow_shared: Annotated[
        bool | None,
        typer.Option("--allow-shared/--no-shared", help="Whether shared scan workers may take its jobs."),
    ] = None,
    shared_share: Annotated[
        float | None,
        typer.Option("--shared-share", help="Share of shared slots it may hold while others wait, 0 to 1."),
    ] = None,
    max_open_runs: Annotated[
        int | None, typer.Option("--max-open-runs", min=1, help="Runs that may be open at once.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what a workspace may do, and say what holds now."""
    from dataclasses import asdict

    from runlane.db import workspaces

    wanted = workspaces.WorkspaceRules(allow_shared, shared_share, max_open_runs)

    async def change(conn: "Connection") -> workspaces.WorkspaceRules:
        workspace_id = await workspaces.find_workspace(conn, name)
        return await workspaces.set_rules(conn, workspace_id, wanted)

    rules = asdict(asyncio.run(in_transaction(settings_here(), change)))
    if as_json:
        print_json(rules)
    else:
        print_fields(list(rules.items()))


def settings_here() -> "Settings":
    """Settings of the environment, and of the stack that runs here."""
    from runlane.events import use_redaction
    from runlane.settings import Settings
    from runlane.stack.urls import adopt_running_stack

    adopt_running_stack(state_dir())
    settings = Settings.load()
    use_redaction(settings.redaction)
    return settings


async def in_transaction(settings: "Settings", make: "Callable[[Connection], Awaitable[MadeT]]") -> MadeT:
    """What `make` answers in a transaction of its own.

    Raises:
        CommandError: it is not known where the database is.
    """
    from runlane.db.pool import open_pool

    if not settings.database_system_url:
        message = "no database: RUNLANE_DATABASE_SYSTEM_URL is not set and no stack runs here"
        raise CommandError(message, ExitCode.UNREACHABLE, hint="runlane up")
    pool = await open_pool(settings.database_system_url, size=1, name="runlane-cli")
    try:
        async with pool.acquire() as conn, conn.transaction():
            return await make(conn)
    finally:
        await pool.close()
