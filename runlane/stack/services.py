"""What every server of the stack has in common."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from runlane import errors
from runlane.stack.processes import ProcessSpec
from runlane.stack.state import LOOPBACK, State

PROBE_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Site:
    """Where a server lives: its own folder below the state folder, and the kept ports and secrets."""

    folder: Path
    state: State
    env: Mapping[str, str]
    """Environment of the supervisor; a server gets only what `server_environment` lets through."""


class Service(Protocol):
    """A server of the stack."""

    @property
    def name(self) -> str:
        """Name in `status()`, logs and folders."""

    @property
    def port_names(self) -> tuple[str, ...]:
        """Names of the ports that it listens on."""

    async def prepare(self) -> None:
        """Makes folders and configuration; may be repeated."""

    def spec(self) -> ProcessSpec:
        """Tells how to start the server, with its ports of the moment."""

    async def finish(self) -> None:
        """Makes what clients expect to find in a running server (roles, buckets); may be repeated."""

    def environment(self) -> dict[str, str]:
        """RUNLANE_* variables that lead a client to this server."""


def server_environment(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Environment of a server: nothing of the supervisor's settings and secrets."""
    kept = {name: env[name] for name in ("PATH", "TMPDIR") if name in env}
    return {
        "PATH": os.defpath,
        **kept,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }


async def check_listening(port: int) -> None:
    """Checks that something accepts connections; spares slow clients a server that is not there yet.

    Raises:
        errors.Unavailable: nothing does.
    """
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError) as error:
        raise errors.Unavailable(f"port {port}: {error}") from error
