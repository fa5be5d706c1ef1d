"""Where the API is and with which key: from the environment, or from the file that `runlane up` writes."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runlane.cli.errors import CommandError, ExitCode
from runlane.private_files import write_private

if TYPE_CHECKING:
    from runlane.cli.client import ApiClient

FILE: Final = "cli.json"
DEFAULT_STATE_DIR: Final = ".runlane"


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to reach an installation. Holds a key: never printed."""

    api_url: str
    api_key: str
    workspace_id: str = ""
    temporal_ui_url: str = ""
    enrolment_key: str = ""
    """Key with which `runlane up` enrols its own scan worker; empty elsewhere."""


def state_dir() -> Path:
    """Folder of local state: RUNLANE_STATE_DIR, or `.runlane` here."""
    return Path(os.environ.get("RUNLANE_STATE_DIR") or DEFAULT_STATE_DIR)


def load_profile() -> Profile:
    """Finds it: RUNLANE_API_URL with RUNLANE_API_KEY, the file RUNLANE_PROFILE, or the state folder's.

    Raises:
        CommandError: there is none, or the file cannot be read.
    """
    url, key = os.environ.get("RUNLANE_API_URL", ""), os.environ.get("RUNLANE_API_KEY", "")
    if url and key:
        return Profile(url.rstrip("/"), key)
    path = Path(os.environ.get("RUNLANE_PROFILE") or state_dir() / FILE)
    profile = read_profile(path)
    if profile is None:
        raise CommandError(
            f"no API to talk to: neither RUNLANE_API_URL and RUNLANE_API_KEY nor {path}",
            ExitCode.UNAUTHENTICATED,
            hint="runlane up",
        )
    return profile


def read_profile(path: Path) -> Profile | None:
    """Reads a profile file; None if it is not there or not one."""
    try:
        return Profile(**json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None
    except PermissionError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", ExitCode.UNAUTHENTICATED) from error


def write_profile(path: Path, profile: Profile) -> None:
    """Writes a profile for its owner's eyes only, whole or not at all."""
    write_private(path, json.dumps(asdict(profile)).encode())


def open_client() -> "ApiClient":
    """Returns a client of the profile's API; use it as a context.

    Raises:
        CommandError: there is no profile.
    """
    from runlane.cli.client import ApiClient

    return ApiClient(load_profile())
