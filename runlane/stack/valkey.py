"""Valkey, which keeps the event bus."""

import redis.asyncio
import redis.exceptions

from runlane import errors
from runlane.stack import binaries
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import PROBE_TIMEOUT_S, Site, server_environment
from runlane.stack.state import LOOPBACK


class ValkeyServer:
    """Valkey (speaks Redis) with an append-only file synchronised every second; nothing is ever evicted."""

    name = "valkey"
    port_names = ("redis",)

    def __init__(self, site: Site) -> None:
        self._site = site
        self._program = binaries.valkey_server()

    @property
    def url(self) -> str:
        """redis:// URL with its password."""
        return f"redis://:{self._site.state.secret('redis')}@{LOOPBACK}:{self._site.state.port('redis')}/0"

    def environment(self) -> dict[str, str]:
        """One URL."""
        return {"RUNLANE_REDIS_URL": self.url}

    async def prepare(self) -> None:
        """Writes the configuration: the password must not appear in a list of processes."""
        folder = self._site.folder
        folder.mkdir(mode=0o700, exist_ok=True)
        lines = (
            f"bind {LOOPBACK}",
            f"port {self._site.state.port('redis')}",
            f'dir "{folder}"',
            f"requirepass {self._site.state.secret('redis')}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
            "set-proc-title no",  # the command line is how an earlier supervisor's server is recognised
            "daemonize no",
        )
        path = folder / "valkey.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def spec(self) -> ProcessSpec:
        """Runs in the foreground."""
        argv = (str(self._program), str(self._site.folder / "valkey.conf"))
        return ProcessSpec(
            self.name, argv, server_environment(self._site.env, self._site.folder), ready=self._ready
        )

    async def finish(self) -> None:
        """Nothing to make: streams and groups are made by those who use them."""

    async def _ready(self) -> None:
        client = redis.asyncio.Redis.from_url(self.url, socket_timeout=PROBE_TIMEOUT_S)
        try:
            await client.ping()
        except (redis.exceptions.RedisError, OSError) as error:
            raise errors.Unavailable(f"valkey: {error}") from error
        finally:
            await client.aclose()
