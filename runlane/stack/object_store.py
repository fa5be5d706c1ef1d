"""An S3 server on a folder, which keeps staged results."""

import asyncio
from typing import Final

import urllib3
from minio import Minio
from minio.error import MinioException

from runlane import errors, names
from runlane.stack import binaries
from runlane.stack.processes import ProcessSpec
from runlane.stack.services import PROBE_TIMEOUT_S, Site, check_listening, server_environment
from runlane.stack.state import LOOPBACK

BUCKETS: Final = (names.RESULTS_BUCKET, names.PICTURES_BUCKET)


_HALF_WRITTEN: Final = ".tmp.*"


class ObjectStore:
    """S3 server on a folder, with fsync and atomic renames."""

    name = "s3"
    port_names = ("s3",)

    def __init__(self, site: Site) -> None:
        self._site = site
        self._argv = binaries.object_store_argv()

    @property
    def endpoint(self) -> str:
        """http:// URL without a bucket."""
        return f"http://{LOOPBACK}:{self._site.state.port('s3')}"

    def environment(self) -> dict[str, str]:
        """Endpoint and keys."""
        return {
            "RUNLANE_S3_ENDPOINT": self.endpoint,
            "RUNLANE_S3_ACCESS_KEY": self._site.state.secret("s3_access_key"),
            "RUNLANE_S3_SECRET_KEY": self._site.state.secret("s3_secret_key"),
        }

    async def prepare(self) -> None:
        """Makes the data folder."""
        self._site.folder.mkdir(mode=0o700, exist_ok=True)
        (self._site.folder / "data").mkdir(mode=0o700, exist_ok=True)

    def spec(self) -> ProcessSpec:
        """Keys go by environment, which only its own user can read."""
        state = self._site.state
        argv = (*self._argv, "serve", "--host", LOOPBACK, "--port", str(state.port("s3")))
        options = ("--data-dir", str(self._site.folder / "data"), "--no-access-log", "--log-level", "warning")
        env = server_environment(self._site.env, self._site.folder)
        env["NANIO_ACCESS_KEY"] = state.secret("s3_access_key")
        env["NANIO_SECRET_KEY"] = state.secret("s3_secret_key")
        return ProcessSpec(self.name, (*argv, *options), env, ready=self._ready, clear=self._remove_halves)

    def _remove_halves(self) -> None:
        """What a killed server had not written to its end, it would else list as an object from then on."""
        for half in (self._site.folder / "data").rglob(_HALF_WRITTEN):
            half.unlink()

    async def finish(self) -> None:
        """Makes the buckets."""
        await asyncio.to_thread(self._make_buckets)

    async def _ready(self) -> None:
        await check_listening(self._site.state.port("s3"))
        try:
            await asyncio.to_thread(self._list_buckets)
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            raise errors.Unavailable(f"s3: {error}") from error

    def _client(self, pool: urllib3.PoolManager) -> Minio:
        state = self._site.state
        return Minio(
            f"{LOOPBACK}:{state.port('s3')}",
            access_key=state.secret("s3_access_key"),
            secret_key=state.secret("s3_secret_key"),
            secure=False,
            http_client=pool,
        )

    def _list_buckets(self) -> None:
        with _pool() as pool:
            self._client(pool).list_buckets()

    def _make_buckets(self) -> None:
        with _pool() as pool:
            client = self._client(pool)
            for bucket in BUCKETS:
                if not client.bucket_exists(bucket):
                    client.make_bucket(bucket)


def _pool() -> urllib3.PoolManager:
    timeout = urllib3.Timeout(connect=PROBE_TIMEOUT_S, read=PROBE_TIMEOUT_S)
    return urllib3.PoolManager(timeout=timeout, retries=False)
