"""A container engine, by the `docker` SDK, which blocks: every call runs in a thread of a pool of our own.

What the SDK does on its own account stays off: no proxy of the host is given to containers, and nothing is
pulled unless it was asked for.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Self, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException

from runlane.containers import MIB, ContainerEnd, ContainerSpec, EngineFacts, Image
from runlane.containers.attachment import Attachment
from runlane.errors import Invalid, RunlaneError, Unavailable
from runlane.errors import NotFound as Gone

_NOBODY: Final = 65_534
"""User and group of every container, whatever its image says."""

_CALL_S: Final = 30
"""Longest time of one call. Only what nobody waits for takes it: a cancel does not."""

_PULL_S: Final = 3600.0

_SHARED_MEMORY_BYTES: Final = 8 * MIB
_CONFLICT: Final = 409
_SERVER_FAULT: Final = 500
_REMOVING: Final = "removing"
_TCP: Final = "tcp://"

_T = TypeVar("_T")


def configuration(spec: ContainerSpec) -> dict[str, object]:
    """The container as the engine's API is told of it. What a connector did not ask for is not there."""
    return {
        "Image": spec.image_id,
        "Entrypoint": list(spec.argv[:1]),
        "Cmd": list(spec.argv[1:]),
        "User": f"{_NOBODY}:{_NOBODY}",
        "WorkingDir": "/",
        "Env": ["HOME=/tmp", "TMPDIR=/tmp"],
        "Labels": dict(spec.labels),
        "AttachStdin": spec.has_stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": spec.has_stdin,
        "StdinOnce": spec.has_stdin,  # without it the end of the input never comes
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": spec.network,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "Privileged": False,
            "IpcMode": "private",
            "ShmSize": _SHARED_MEMORY_BYTES,
            "Memory": spec.memory_bytes,
            "MemorySwap": spec.memory_bytes,  # memory with swap: there is none
            "NanoCpus": int(spec.cpus * 1e9),
            "PidsLimit": spec.pids,
            "Tmpfs": _tmpfs(spec.tmpfs_bytes),
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        },
    }


def _tmpfs(size_bytes: int) -> dict[str, str]:
    if not size_bytes:
        return {}
    # owned by the user: the mode of the image's own /tmp is laid over it, whatever is said here
    options = f"rw,nosuid,nodev,noexec,size={size_bytes},uid={_NOBODY},gid={_NOBODY},mode=0700"
    return {"/tmp": options}  # noqa: S108  # inside the container


class Engine:
    """One engine. Every call raises `Unavailable` if the engine does not answer or has trouble of its own."""

    def __init__(self, url: str, client: docker.APIClient, pool: ThreadPoolExecutor) -> None:
        self.url = url
        self._client = client
        self._pool = pool

    @classmethod
    async def open(cls, url: str, containers: int) -> Self:
        """Connects to an engine (`unix://…` or `tcp://…`), for at most this many containers at once.

        Over TCP with TLS if the environment says so, by the variables that the engine's own client reads.
        """
        threads = 2 * containers + 8  # reader and writer of each, and calls that must not wait for them
        pool = ThreadPoolExecutor(threads, thread_name_prefix="engine")
        loop = asyncio.get_running_loop()
        try:
            client = await loop.run_in_executor(pool, _connect, url, threads)
        except Unavailable:
            pool.shutdown(wait=False)
            raise
        return cls(url, client, pool)

    def close(self) -> None:
        """Frees the connections; calls in progress end by themselves."""
        self._pool.shutdown(wait=False)
        self._client.close()

    async def facts(self) -> EngineFacts:
        """What it is, and which limits it cannot keep."""
        info: Mapping[str, object] = await self._call(self._client.info)
        version: Mapping[str, object] = await self._call(self._client.version)
        limits = {"MemoryLimit": "memory", "SwapLimit": "swap", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}
        return EngineFacts(
            name=str(info.get("Name", "")),
            version=str(version.get("Version", "")),
            api_version=str(version.get("ApiVersion", "")),
            lacks=tuple(limit for key, limit in limits.items() if info.get(key) is False),
        )

    async def image(self, reference: str) -> Image | None:
        """A present image by id, tag or `repository@digest`; None if it is not there. Pulls nothing."""
        found = await self._call(_or_none, self._client.inspect_image, reference)
        if found is None:
            return None
        config = found.get("Config") or {}
        digests = tuple(found.get("RepoDigests") or ())
        return Image(found["Id"], digests, has_volumes=bool(config.get("Volumes")))

    async def pull(self, repository: str, digest: str) -> None:
        """Fetches an image by its registry digest.

        In a thread that the end of the process does not wait for: a registry may take as long as it likes.

        Raises:
            Invalid: the registry has no such image, or does not give it to us.
        """
        loop = asyncio.get_running_loop()
        pulled: asyncio.Future[None] = loop.create_future()

        def pull() -> None:
            error: RunlaneError | None = None
            try:
                with _translated():
                    self._client.pull(repository, tag=digest)
            except RunlaneError as trouble:
                error = trouble
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_tell, pulled, error)

        threading.Thread(target=pull, name="engine-pull", daemon=True).start()
        try:
            async with asyncio.timeout(_PULL_S):
                await pulled
        except TimeoutError as error:
            raise Unavailable(f"the registry has not given the image within {_PULL_S:g} s") from error

    async def network_driver(self, name: str) -> str | None:
        """Driver of a network (`bridge`, `host` …); None if there is none of this name."""
        found = await self._call(_or_none, self._client.inspect_network, name)
        return str(found["Driver"]) if found is not None else None

    async def create(self, name: str, spec: ContainerSpec) -> None:
        """Makes a container under a name that nothing else has; nothing runs yet.

        Raises:
            Invalid: the engine does not take it as it is.
        """
        await self._call(self._client.create_container_from_config, configuration(spec), name)

    async def attach(self, name: str, *, has_stdin: bool) -> Attachment:
        """Takes hold of its streams. To be called before its start: what it wrote earlier is not seen."""
        ways = {"stdin": int(has_stdin), "stdout": 1, "stderr": 1, "stream": 1}
        given = await self._call(self._client.attach_socket, name, ways)
        return Attachment(given, self._pool)

    async def start(self, name: str) -> None:
        """Starts it.

        Raises:
            Invalid: its entry point cannot be started.
        """
        await self._call(self._client.start, name)

    async def wait(self, name: str, at_most_s: float) -> ContainerEnd | None:
        """How it ended; None if it has not within this time.

        Raises:
            Gone: it was removed by somebody else.
        """
        return await self._call(_await_end, self._client, name, at_most_s)

    async def remove(self, name: str) -> None:
        """Kills it if it runs and removes it with all that it has written. Harmless if it is gone."""
        await self._call(_remove, self._client, name)

    async def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """Ids of containers, running or not, that carry all of these labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._call(self._client.containers, all=True, filters={"label": wanted})
        return [str(container["Id"]) for container in found]

    async def _call(self, call: Callable[..., _T], *args: object, **kwargs: object) -> _T:
        def translated() -> _T:
            with _translated():
                return call(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._pool, translated)


def _tell(pulled: asyncio.Future[None], error: RunlaneError | None) -> None:
    if pulled.done():
        return
    if error is None:
        pulled.set_result(None)
    else:
        pulled.set_exception(error)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        detail = str(error.explanation or error)[:500]
        if error.status_code is not None and error.status_code < _SERVER_FAULT:
            raise Invalid(detail, code="container.refused") from error
        raise Unavailable(f"the container engine has trouble: {detail}") from error
    except (DockerException, RequestException, OSError) as error:
        raise Unavailable(f"the container engine does not answer: {str(error)[:500]}") from error


class _Client(docker.APIClient):  # type: ignore[misc]  # the SDK has no types
    """Takes nothing of the environment: a bundle of authorities there would replace the engine's own."""

    @property
    def trust_env(self) -> bool:
        """Never, whatever the session below sets."""
        return False

    @trust_env.setter
    def trust_env(self, value: bool) -> None:
        pass


def _connect(url: str, connections: int) -> docker.APIClient:
    with _translated():
        _knock(url)
        # as the engine's own command line has it: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH
        tls = kwargs_from_env().get("tls", False) if url.startswith(_TCP) else False
        return _Client(base_url=url, timeout=_CALL_S, max_pool_size=connections, tls=tls)


def _knock(url: str) -> None:
    """Looks whether anybody listens: the SDK leaves a socket open where nobody does."""
    path = url.removeprefix("unix://")
    if path != url:
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.connect(path)


def _or_none(call: Callable[[str], _T], name: str) -> _T | None:
    try:
        return call(name)
    except (ImageNotFound, NotFound):
        return None


def _await_end(client: docker.APIClient, name: str, at_most_s: float) -> ContainerEnd | None:
    try:
        client.wait(name, timeout=at_most_s)
        state = client.inspect_container(name)["State"]
    except NotFound as error:
        raise Gone("the container was removed") from error
    except RequestException:
        client.ping()  # an engine that is away is told apart from a container that runs on
        return None
    if state["Running"]:
        return None
    return ContainerEnd(int(state["ExitCode"]), is_oom=bool(state["OOMKilled"]))


def _remove(client: docker.APIClient, name: str) -> None:
    try:
        client.remove_container(name, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != _CONFLICT or not _is_leaving(client, name):
            raise


def _is_leaving(client: docker.APIClient, name: str) -> bool:
    """Whether somebody else is about to remove it, or has: the one conflict that needs nothing more."""
    found = _or_none(client.inspect_container, name)
    return found is None or found["State"]["Status"] == _REMOVING
