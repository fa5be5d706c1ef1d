"""Addresses of a running stack, and the settings that carry them to a process."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from runlane.stack.errors import StackError

EXTERNAL_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": ("RUNLANE_DATABASE_URL", "RUNLANE_DATABASE_API_URL", "RUNLANE_DATABASE_SYSTEM_URL"),
    "valkey": ("RUNLANE_REDIS_URL",),
    "s3": ("RUNLANE_S3_ENDPOINT", "RUNLANE_S3_ACCESS_KEY", "RUNLANE_S3_SECRET_KEY"),
    "temporal": ("RUNLANE_TEMPORAL_ADDRESS",),
}
"""Variables that, when all set, say that a server is somewhere else: then it is not started."""


@dataclass(frozen=True, slots=True)
class StackUrls:
    """Where everything is. Passwords are inside: never log one of these."""

    database_owner: str
    """postgresql:// URL of the role that owns the schema (migrations)."""
    database_api: str
    """The role under row-level security."""
    database_system: str
    """The role that sees every workspace."""
    redis: str
    s3_endpoint: str
    s3_access_key: str
    s3_secret_key: str
    temporal_address: str
    """host:port"""
    temporal_ui: str | None
    """http:// address of the Web UI; None when unknown."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Reads the addresses from RUNLANE_* variables.

        Raises:
            KeyError: one that has no default is missing.
        """
        return cls(
            database_owner=env["RUNLANE_DATABASE_URL"],
            database_api=env["RUNLANE_DATABASE_API_URL"],
            database_system=env["RUNLANE_DATABASE_SYSTEM_URL"],
            redis=env["RUNLANE_REDIS_URL"],
            s3_endpoint=env["RUNLANE_S3_ENDPOINT"],
            s3_access_key=env["RUNLANE_S3_ACCESS_KEY"],
            s3_secret_key=env["RUNLANE_S3_SECRET_KEY"],
            temporal_address=env["RUNLANE_TEMPORAL_ADDRESS"],
            temporal_ui=env.get("RUNLANE_TEMPORAL_UI_URL"),
        )


def is_external(server: str, env: Mapping[str, str]) -> bool:
    """Tells whether the environment says where this server is.

    Raises:
        StackError: it says so by half, which would silently mix two servers.
    """
    variables = EXTERNAL_VARIABLES[server]
    missing = [name for name in variables if not env.get(name)]
    if missing and len(missing) < len(variables):
        raise StackError(f"{server}: set {', '.join(missing)} too, or none of {', '.join(variables)}")
    return not missing


def environment_file(folder: Path) -> Path:
    """File in which a running stack says the RUNLANE_* variables that lead to it."""
    return folder / "environment.json"


def running_environment(state_dir: Path) -> dict[str, str]:
    """Reads the RUNLANE_* variables of a running stack, for another terminal; empty when none runs."""
    try:
        values = json.loads(environment_file(state_dir).read_text())
    except (FileNotFoundError, PermissionError):
        return {}
    return {str(name): str(value) for name, value in values.items()}


def adopt_running_stack(state_dir: Path) -> None:
    """Lets this process see the settings of the stack that runs in a folder, unless it has its own."""
    for name, value in running_environment(state_dir).items():
        os.environ.setdefault(name, value)
