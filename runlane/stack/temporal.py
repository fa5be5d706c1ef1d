"""Temporal's development server: server, Web UI and storage in one program."""

import asyncio
from typing import Final

import psutil
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from runlane import errors, names
from runlane.stack import binaries
from runlane.stack.errors import StackError
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import PROBE_TIMEOUT_S, Site, check_listening, server_environment
from runlane.stack.state import LOOPBACK
from runlane.stack.temporal_settings import DYNAMIC_CONFIG, SEARCH_ATTRIBUTES

SQLITE_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=NORMAL")


class TemporalServer:
    """Temporal with its Web UI on a SQLite file. It checks no credentials and listens on loopback only."""

    name = "temporal"
    port_names = ("temporal", "temporal_ui")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cli = binaries.temporal_cli()

    @property
    def address(self) -> str:
        """host:port of the gRPC front end."""
        return f"{LOOPBACK}:{self._site.state.port('temporal')}"

    def environment(self) -> dict[str, str]:
        """Address of the front end and of the Web UI."""
        ui = f"http://{LOOPBACK}:{self._site.state.port('temporal_ui')}"
        return {"RUNLANE_TEMPORAL_ADDRESS": self.address, "RUNLANE_TEMPORAL_UI_URL": ui}

    async def prepare(self) -> None:
        """Makes the data folder."""
        self._site.folder.mkdir(mode=0o700, exist_ok=True)

    def spec(self) -> ProcessSpec:
        """Server, UI and namespace in one process; a restart on the same file keeps every workflow."""
        state = self._site.state
        argv = [str(self._cli), "server", "start-dev", "--ip", LOOPBACK, "--log-level", "error"]
        argv += ["--port", str(state.port("temporal")), "--ui-port", str(state.port("temporal_ui"))]
        argv += ["--db-filename", str(self._site.folder / "temporal.db"), "--ui-disable-news-fetch"]
        for pragma in SQLITE_PRAGMAS:
            argv += ["--sqlite-pragma", pragma]
        for key, value in DYNAMIC_CONFIG.items():
            argv += ["--dynamic-config-value", f"{key}={value}"]
        for attribute, kind in SEARCH_ATTRIBUTES.items():
            argv += ["--search-attribute", f"{attribute}={kind}"]
        env = server_environment(self._site.env, self._site.folder)
        return ProcessSpec(self.name, tuple(argv), env, ready=self._ready)

    async def finish(self) -> None:
        """Checks that it is our server that answers: it has no password that would tell."""
        port = self._site.state.port("temporal")
        record = self._site.state.processes.get(self.name)
        if record is not None and not await asyncio.to_thread(_listens, record.pid, port):
            raise StackError(f"port {port} is served by somebody else")

    async def _ready(self) -> None:
        await check_listening(self._site.state.port("temporal"))
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                client = await Client.connect(self.address, namespace=names.TEMPORAL_NAMESPACE)
                request = DescribeNamespaceRequest(namespace=names.TEMPORAL_NAMESPACE)
                await client.workflow_service.describe_namespace(request)
                await client.count_workflows(f"{names.SA_RUN_STATUS} = 'none'")
        except (RPCError, RuntimeError, TimeoutError) as error:
            raise errors.Unavailable(f"temporal: {error}") from error


def _listens(pid: int, port: int) -> bool:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # a hardened kernel hides them: do not refuse a good server for it
        return True
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
