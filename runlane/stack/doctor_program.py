"""Examines the machine and the program: packages, settings, secrets, disk space, programs on PATH."""

import importlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runlane.db.keys import MIN_PEPPER
from runlane.settings import Settings, unknown_variables
from runlane.stack import binaries
from runlane.stack.errors import StackError
from runlane.stack.findings import Check, Level
from runlane.tools import Toolset
from runlane.tools.adapters import programs_of

PACKAGES: Final = ("runlane", "workflows", "activities", "api", "lanes")
OPTIONAL_TOOLS: Final = {
    **{program.name: f"the tool set {each}" for each in Toolset for program in programs_of(each)},
    "dockerd": "a private container engine for tests",
}
OTHER_NAMES: Final = {program.name: program.others for each in Toolset for program in programs_of(each)}
FREE_BYTES: Final = 1 << 30
VERSION_TIMEOUT_S: Final = 20


def check_program() -> list[Check]:
    """Our own packages, settings in the environment that nobody reads, and programs on PATH."""
    return [
        _packages(),
        _variables(),
        *_embedded(),
        *(_tool(name, use) for name, use in OPTIONAL_TOOLS.items()),
    ]


def check_machine(settings: Settings) -> list[Check]:
    """Secrets and disk space."""
    pepper = len(settings.key_pepper.get_secret_value())
    strong = pepper >= MIN_PEPPER
    detail = "set" if strong else f"RUNLANE_KEY_PEPPER has {pepper} characters, {MIN_PEPPER} are needed"
    folder = next(
        each
        for each in (settings.state_dir.absolute(), *settings.state_dir.absolute().parents)
        if each.exists()
    )
    free = shutil.disk_usage(folder).free
    level = Level.OK if free > FREE_BYTES else Level.WARN
    return [
        Check("key pepper", Level.OK if strong else Level.FAIL, detail),
        Check("disk space", level, f"{free / (1 << 30):.1f} GiB free at {folder}"),
    ]


def _packages() -> Check:
    """Other distributions have packages of the same names; a mixed installation runs half of each."""
    folders: set[Path] = set()
    for name in PACKAGES:
        try:
            origin = importlib.import_module(name).__file__
        except ImportError as error:
            return Check("packages", Level.FAIL, f"{name}: {error}")
        if origin is None:
            return Check("packages", Level.FAIL, f"{name} is somebody else's namespace package")
        folders.add(Path(origin).resolve().parent.parent)
    if len(folders) > 1:
        return Check(
            "packages", Level.FAIL, f"mixed with another distribution: {', '.join(map(str, sorted(folders)))}"
        )
    return Check("packages", Level.OK, f"all in {folders.pop()}")


def _variables() -> Check:
    unknown = unknown_variables()
    if unknown:
        return Check("settings", Level.WARN, f"not read by anything (misspelt?): {', '.join(unknown)}")
    return Check("settings", Level.OK, "every RUNLANE_* variable is known")


def _embedded() -> list[Check]:
    """Programs of the embedded stack. Absent ones only matter to `runlane up`."""
    finders: dict[str, Callable[[], list[str]]] = {
        "postgres": lambda: [str(binaries.postgres_bin({}) / "postgres"), "--version"],
        "valkey": lambda: [str(binaries.valkey_server()), "--version"],
        "s3": lambda: [*binaries.object_store_argv(), "--version"],
        "temporal": lambda: [str(binaries.temporal_cli()), "--version"],
    }
    return [_embedded_program(name, find) for name, find in finders.items()]


def _embedded_program(name: str, find: Callable[[], list[str]]) -> Check:
    title = f"embedded {name}"
    try:
        argv = find()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True)
    except StackError as error:
        return Check(title, Level.OK, f"not installed, only `runlane up` needs it ({error.detail})")
    except (OSError, subprocess.SubprocessError) as error:
        return Check(title, Level.FAIL, f"does not run: {error}")
    return Check(title, Level.OK, f"{done.stdout.strip().splitlines()[0]} ({argv[0]})")


def _tool(name: str, use: str) -> Check:
    found = next(filter(None, map(shutil.which, (name, *OTHER_NAMES.get(name, ())))), None)
    return Check(f"optional {name}", Level.OK, found or f"not on PATH; only needed for {use}")
