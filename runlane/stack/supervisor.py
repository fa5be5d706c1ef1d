"""The stack: real servers, and the product's processes on top, on one machine.

`Stack.open` starts what is missing, takes over what an earlier supervisor left running, restarts what dies,
and stops everything in reverse order. State and data stay in the folder, so opening it again continues.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import structlog

from runlane.private_files import write_private
from runlane.stack.errors import ProcessDied, StackError
from runlane.stack.keeper import Keeper, ProcessState, ProcessStatus, stop_leftover
from runlane.stack.object_store import ObjectStore
from runlane.stack.postgres import PostgresServer
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import Service, Site
from runlane.stack.state import (
    State,
    hold_lock,
    is_port_free,
    prepare_folder,
)
from runlane.stack.takedown import Guard
from runlane.stack.temporal import TemporalServer
from runlane.stack.urls import StackUrls, environment_file, is_external, running_environment
from runlane.stack.valkey import ValkeyServer

__all__ = ["SERVERS", "Stack", "running_environment", "stop_requested"]

SERVERS: Final[Mapping[str, Callable[[Site], Service]]] = {
    "postgres": PostgresServer,
    "valkey": ValkeyServer,
    "s3": ObjectStore,
    "temporal": TemporalServer,
}
START_ATTEMPTS: Final = 5
RETRY_S: Final = 0.2

log = structlog.get_logger(__name__)


class Stack:
    """A running stack. Made by `Stack.open`; every method is for the one event loop that opened it."""

    def __init__(self, folder: Path, env: Mapping[str, str], state: State) -> None:
        self.folder = folder
        self._env = dict(env)
        self._state = state
        self._keepers: dict[str, Keeper] = {}
        self._is_detached = False
        self._services: dict[str, Service] = {
            name: server(Site(folder / name, state, self._env))
            for name, server in SERVERS.items()
            if not is_external(name, env)
        }

    @classmethod
    @asynccontextmanager
    async def open(
        cls, state_dir: Path, env: Mapping[str, str], *, guarded: bool = False
    ) -> AsyncIterator[Self]:
        """Runs the servers of a state folder for the length of the block.

        `env` is the environment to build on, usually `os.environ`. A server whose variables are all set in it
        (`runlane.stack.urls.EXTERNAL_VARIABLES`) is used where it is and not started.
        `guarded` takes everything down even when this very process is killed; else a later `open` continues.

        Raises:
            StackBusy: another process runs this folder.
            StackError: a server could not be started; those already started are stopped again.
        """
        folder = prepare_folder(state_dir)
        with hold_lock(folder):
            state = State.load(folder)
            state.save()
            stack = cls(folder, env, state)
            guard = await Guard.start(folder) if guarded else None
            try:
                await stack._start_servers()
                write_private(environment_file(folder), json.dumps(stack.environment(), indent=1).encode())
                yield stack
            finally:
                await stack._close()
                if guard is not None:
                    await guard.dismiss()

    @property
    def urls(self) -> StackUrls:
        """Where the servers are, embedded or not."""
        return StackUrls.from_environment(self.environment())

    @property
    def database_admin(self) -> str | None:
        """Superuser's URL of the embedded PostgreSQL on its `postgres` database; None when it is not ours."""
        server = self._services.get("postgres")
        return server.admin_url if isinstance(server, PostgresServer) else None

    def environment(self) -> dict[str, str]:
        """RUNLANE_* variables that lead a process to this stack, the caller's included."""
        own = {
            "RUNLANE_STATE_DIR": str(self.folder),
            "RUNLANE_KEY_PEPPER": self._state.secret("key_pepper"),
            "RUNLANE_SECRET_KEYS": self._state.secret("secret_key"),
            "RUNLANE_GATEWAY_PORT": str(self._state.port("gateway")),
        }
        values = own | {name: value for name, value in self._env.items() if name.startswith("RUNLANE_")}
        for service in self._services.values():
            values |= service.environment()
        return values

    def port(self, name: str) -> int:
        """Returns the loopback port kept under a name of the caller's choice, free when first drawn."""
        return self._state.port(name)

    def log_path(self, name: str) -> Path:
        """File that holds the output of a process."""
        return self.folder / "logs" / f"{name}.log"

    async def start_process(self, spec: ProcessSpec) -> int:
        """Starts a product process and waits until it is ready; from then on it is restarted when it dies.

        Its environment is the caller's, the stack's and `spec.env`, the later winning. Returns the pid.

        Raises:
            StackError: the name is taken, or the process died or was not ready in time (its log is quoted).
        """
        if spec.name in self._keepers:
            raise StackError(f"{spec.name} is already part of this stack")
        whole = replace(spec, env=self._env | self.environment() | dict(spec.env))
        keeper = self._keepers[spec.name] = self._keeper(spec.name, lambda: whole)
        try:
            await keeper.start()
        except BaseException:
            del self._keepers[spec.name]
            raise
        return keeper.pid

    async def stop_process(self, name: str) -> None:
        """Stops a product process or server for good."""
        await self._keeper_of(name).stop()

    async def resume_process(self, name: str) -> int:
        """Starts a stopped server or process again; returns the pid once it is ready."""
        keeper = self._keeper_of(name)
        await keeper.start()
        return keeper.pid

    async def restart(self, name: str) -> int:
        """Restarts a server or process orderly; returns the new pid once it is ready."""
        keeper = self._keeper_of(name)
        await keeper.restart()
        return keeper.pid

    def kill(self, name: str) -> int:
        """Kills a server or process as a crash would (SIGKILL); it is restarted. Returns the killed pid."""
        return self._keeper_of(name).kill()

    async def recovered(self, name: str, old_pid: int) -> int:
        """Waits until a successor of the killed `old_pid` is ready; returns the new pid."""
        return await self._keeper_of(name).recovered(old_pid)

    def pid(self, name: str) -> int:
        """Pid of a live server or process.

        Raises:
            StackError: it does not run at the moment.
        """
        return self._keeper_of(name).pid

    def status(self) -> list[ProcessStatus]:
        """Says how each server and process is, in the order of their start."""
        external = [
            ProcessStatus(name, ProcessState.EXTERNAL, None, 0, adopted=False)
            for name in SERVERS
            if name not in self._services
        ]
        return external + [keeper.status() for keeper in self._keepers.values()]

    def detach(self) -> None:
        """Lets everything run on when the block ends, for a later `Stack.open` or `down` of the folder."""
        self._is_detached = True

    async def _start_servers(self) -> None:
        # Product processes of an earlier supervisor may run old code: they are replaced, servers are adopted.
        products = [name for name in self._state.processes if name not in self._services]
        await asyncio.gather(*(stop_leftover(self._state, name) for name in reversed(products)))
        for name, service in self._services.items():
            self._keepers[name] = self._keeper(name, service.spec)
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._services:
                    group.create_task(self._start_server(name), name=f"start-{name}")
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    async def _start_server(self, name: str) -> None:
        service, keeper = self._services[name], self._keepers[name]
        await service.prepare()
        if not await keeper.adopt():
            await self._start_fresh(service, keeper)
        await service.finish()
        log.info("server_ready", name=name, pid=keeper.pid)

    async def _start_fresh(self, service: Service, keeper: Keeper) -> None:
        for attempt in range(START_ATTEMPTS):
            if self._settle_ports(service):
                await service.prepare()
            try:
                await keeper.start()
            except ProcessDied as error:
                # A port was taken after we looked, or a killed predecessor is not all gone yet.
                if attempt == START_ATTEMPTS - 1:
                    raise
                log.warning("server_died_at_start", name=service.name, reason=error.detail)
                await asyncio.sleep(RETRY_S * 2**attempt)
            else:
                return

    def _settle_ports(self, service: Service) -> bool:
        """Gives up ports that strangers sit on; tells whether there were any."""
        taken = [name for name in service.port_names if not is_port_free(self._state.port(name))]
        for name in taken:
            log.warning("port_taken", name=name, port=self._state.port(name))
            self._state.forget_port(name)
        return bool(taken)

    def _keeper(self, name: str, make_spec: Callable[[], ProcessSpec]) -> Keeper:
        return Keeper(name, make_spec, self._state, self.log_path(name))

    def _keeper_of(self, name: str) -> Keeper:
        keeper = self._keepers.get(name)
        if keeper is None:
            raise StackError(f"no {name} in this stack (there are {', '.join(self._keepers) or 'none'})")
        return keeper

    async def _close(self) -> None:
        keepers = list(reversed(self._keepers.values()))
        if self._is_detached:
            await asyncio.gather(*(keeper.detach() for keeper in keepers))
            return
        products = [keeper for keeper in keepers if keeper.name not in self._services]
        servers = [keeper for keeper in keepers if keeper.name in self._services]
        environment_file(self.folder).unlink(missing_ok=True)
        # A wave is told to stop in reverse order and awaited together: servers outlive whoever uses them.
        for wave in (products, servers):
            await asyncio.gather(*(keeper.stop() for keeper in wave))


async def stop_requested() -> None:
    """Returns when this process is asked to end (SIGINT, SIGTERM)."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, asked.set)
    try:
        await asked.wait()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
