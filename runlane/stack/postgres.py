"""PostgreSQL from a wheel: cluster, roles and server, run by whoever we are."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import asyncpg
import psutil
import structlog

from runlane import errors
from runlane.stack import binaries
from runlane.stack.errors import StackError
from runlane.stack.privileges import Identity, unprivileged_identity
from runlane.stack.processes import POLL_S, ProcessSpec
from runlane.stack.services import PROBE_TIMEOUT_S, Site, server_environment
from runlane.stack.state import LOOPBACK

SUPERUSER: Final = "postgres"
DATABASE: Final = "runlane"
INIT_SQL: Final = Path(__file__).with_name("postgres-init.sql")
MINIMUM_MAJOR: Final = 18
"""uuidv7() and column lists in SET NULL."""
ORPHAN_TIMEOUT_S: Final = 5.0
COMMAND_TIMEOUT_S: Final = 120
OUTPUT_CHARS: Final = 1500
SETTINGS: Final = (
    "max_connections=200",
    "shared_buffers=128MB",
    "random_page_cost=1.1",  # no spinning disk
    "unix_socket_directories=",
    "timezone=UTC",
)

log = structlog.get_logger(__name__)


class PostgresServer:
    """A private cluster with the database `runlane` and its three roles (see `postgres-init.sql`)."""

    name = "postgres"
    port_names = ("postgres",)

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bin = binaries.postgres_bin(site.env)
        self._identity = Identity()

    def url(self, user: str, secret: str, database: str = DATABASE) -> str:
        """postgresql:// URL for one of the roles."""
        state = self._site.state
        return f"postgresql://{user}:{state.secret(secret)}@{LOOPBACK}:{state.port('postgres')}/{database}"

    @property
    def admin_url(self) -> str:
        """The superuser on the maintenance database."""
        return self.url(SUPERUSER, "postgres", "postgres")

    def environment(self) -> dict[str, str]:
        """One URL for each role."""
        return {
            "RUNLANE_DATABASE_URL": self.url("runlane", "postgres_owner"),
            "RUNLANE_DATABASE_API_URL": self.url("runlane_api", "postgres_api"),
            "RUNLANE_DATABASE_SYSTEM_URL": self.url("runlane_system", "postgres_system"),
        }

    @property
    def data(self) -> Path:
        """The cluster's folder."""
        return self._site.folder / "data"

    async def prepare(self) -> None:
        """Creates the cluster under another name and renames it, so a cluster that is there is complete."""
        # The unprivileged user passes through; the cluster itself is 0700.
        self._site.folder.mkdir(mode=0o711, exist_ok=True)
        self._identity = await asyncio.to_thread(
            unprivileged_identity, self._bin / "postgres", self._site.folder
        )
        if not self.data.exists():
            await self._create_cluster()
        await asyncio.to_thread(self._identity.own, self.data)
        self._check_version()

    def spec(self) -> ProcessSpec:
        """SIGINT is PostgreSQL's fast shutdown: sessions are ended, the log is flushed."""
        argv = [str(self._bin / "postgres"), "-D", str(self.data), "-h", LOOPBACK]
        argv += ["-p", str(self._site.state.port("postgres"))]
        for setting in SETTINGS:
            argv += ["-c", setting]
        return ProcessSpec(
            self.name,
            tuple(argv),
            server_environment(self._site.env, self._site.folder),
            ready=self._ready,
            clear=self._clear,
            stop_signal=signal.SIGINT,
            prefix=self._identity.prefix,
            user=self._identity.user,
            cwd=self._site.folder,
        )

    async def finish(self) -> None:
        """Makes roles and database; sets their passwords to the kept ones."""
        state = self._site.state
        env = server_environment(self._site.env, self._site.folder) | {
            "PGPASSWORD": state.secret("postgres"),
            "RUNLANE_POSTGRES_OWNER_PASSWORD": state.secret("postgres_owner"),
            "RUNLANE_POSTGRES_API_PASSWORD": state.secret("postgres_api"),
            "RUNLANE_POSTGRES_SYSTEM_PASSWORD": state.secret("postgres_system"),
        }
        port = str(state.port("postgres"))
        address = ("-h", LOOPBACK, "-p", port, "-U", SUPERUSER, "-d", "postgres")
        argv = [str(self._bin / "psql"), "-X", "-q", *address, "-f", str(INIT_SQL)]
        await asyncio.to_thread(_run, argv, env)

    def _clear(self) -> None:
        """Ends backends that outlived a killed server and removes a lock file whose pid was given to another.

        PostgreSQL refuses to start over either. A server that somebody started by hand on this cluster is
        recognised by its working folder and left alone.
        """
        lock_file = self.data / "postmaster.pid"
        try:
            owner = int(lock_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return
        deadline = time.monotonic() + ORPHAN_TIMEOUT_S
        while (pids := self._pids_in_cluster()) and owner not in pids and time.monotonic() < deadline:
            for pid in pids:
                log.warning("postgres_orphan_killed", pid=pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        if not pids:
            lock_file.unlink(missing_ok=True)

    def _pids_in_cluster(self) -> set[int]:
        folder = os.path.realpath(self.data)
        # A process without a working folder is another user's or a zombie.
        return {each.pid for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == folder}

    async def _ready(self) -> None:
        try:
            connection = await asyncpg.connect(self.admin_url, timeout=PROBE_TIMEOUT_S)
            try:
                await connection.fetchval("SELECT 1")
            finally:
                await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise errors.Unavailable(f"postgres: {error}") from error

    async def _create_cluster(self) -> None:
        for leftover in self._site.folder.glob("init-*"):
            leftover.unlink() if leftover.is_file() else shutil.rmtree(leftover)
        draft = self._site.folder / f"init-{os.getpid()}"
        draft.mkdir(mode=0o700)
        password = draft.with_suffix(".password")
        password.touch(mode=0o600)
        password.write_text(self._site.state.secret("postgres"))
        self._identity.own(draft)
        self._identity.own(password)
        try:
            argv = [str(self._bin / "initdb"), "-D", str(draft), "-U", SUPERUSER, "-E", "UTF8"]
            # The builtin provider sorts alike on every platform and in every PostgreSQL build.
            argv += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            argv += ["--auth=scram-sha-256", f"--pwfile={password}"]
            env = server_environment(self._site.env, self._site.folder)
            argv = [*self._identity.prefix, *argv]
            await asyncio.to_thread(_run, argv, env, self._identity.user, self._site.folder)
        finally:
            password.unlink()
        draft.rename(self.data)

    def _check_version(self) -> None:
        major = int((self.data / "PG_VERSION").read_text())
        if major < MINIMUM_MAJOR:
            raise StackError(
                f"{self.data} is a PostgreSQL {major} cluster; {MINIMUM_MAJOR} or later is needed"
            )


def _run(argv: list[str], env: dict[str, str], user: int | None = None, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=env,
            cwd=cwd,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        command = f"{Path(argv[0]).name} … {Path(argv[-1]).name}"
        text = done.stdout.decode(errors="replace").strip()
        raise StackError(f"{command} failed ({done.returncode}): {text[-OUTPUT_CHARS:]}")
