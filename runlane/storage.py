"""The buckets: staged results and, apart from them, the pictures of web services.

The `minio` client is blocking, so every call runs in a thread. Keys carry the dispatch and a random part:
nothing is ever overwritten, and uniqueness is the database's business, not the bucket's.
"""

import asyncio
import hashlib
import io
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from urllib.parse import urlsplit
from uuid import UUID

from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from urllib3 import PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from runlane import names
from runlane.errors import Unavailable
from runlane.presigning import Signer

_OBJECT_NAME = re.compile(r"[0-9a-f]{32}\.ndjson")

UPLOAD_EXPIRY = timedelta(minutes=15)
MAX_OBJECT_BYTES = 128 * 1024 * 1024
"""Twice what one child of a scan worker may write; the merge holds an object in memory."""


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Where the bucket is and who we are there."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str
    public_url: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the bucket. `last_modified` None: its age cannot be told."""

    key: str
    last_modified: datetime | None


class CorruptObject(Exception):
    """A staged object is missing, has another size or another hash than its row says."""


def _client(url: str, config: StorageConfig) -> Minio:
    parts = urlsplit(url)
    pool = PoolManager(
        maxsize=16,
        timeout=Timeout(connect=5, read=60),
        retries=Retry(total=0, redirect=0),
    )
    return Minio(
        endpoint=parts.netloc,
        access_key=config.access_key,
        secret_key=config.secret_key,
        secure=parts.scheme == "https",
        region=config.region,
        http_client=pool,
    )


def object_key(workspace_id: UUID, dispatch_id: UUID) -> str:
    """A fresh key for one delivery of a batch."""
    return f"{workspace_id}/{dispatch_id}/{secrets.token_hex(16)}.ndjson"


def is_object_key(key: str, workspace_id: UUID, dispatch_id: UUID) -> bool:
    """Whether `object_key` may have made this key for this dispatch."""
    folder, _, name = key.rpartition("/")
    return folder == f"{workspace_id}/{dispatch_id}" and _OBJECT_NAME.fullmatch(name) is not None


def older(objects: Sequence[StoredObject], bound: datetime) -> list[str]:
    """Keys of the objects that are older than `bound`; one whose age cannot be told is not among them."""
    return [each.key for each in objects if each.last_modified is not None and each.last_modified < bound]


def workspace_of_key(key: str) -> UUID | None:
    """The workspace of a staged result by its key; None if `object_key` has not made it."""
    workspace, _, rest = key.partition("/")
    try:
        workspace_id, dispatch_id = UUID(workspace), UUID(rest.partition("/")[0])
    except ValueError:
        return None
    return workspace_id if is_object_key(key, workspace_id, dispatch_id) else None


class Storage:
    """One bucket. Raises Unavailable when the server does not answer."""

    def __init__(self, config: StorageConfig, bucket: str = names.RESULTS_BUCKET) -> None:
        self._bucket = bucket
        self._config = config
        self._internal = _client(config.endpoint, config)
        self._signer = Signer(
            config.public_url or config.endpoint, config.access_key, config.secret_key, config.region
        )

    def of_pictures(self) -> "Storage":
        """The bucket of pictures on the same server."""
        return Storage(self._config, names.PICTURES_BUCKET)

    async def ensure_bucket(self) -> None:
        """Creates the bucket if it is not there."""
        await asyncio.to_thread(self._ensure_bucket)

    def _ensure_bucket(self) -> None:
        try:
            if not self._internal.bucket_exists(bucket_name=self._bucket):
                self._internal.make_bucket(bucket_name=self._bucket)
        except S3Error as error:
            if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                raise Unavailable(f"bucket: {error.code}") from error
        except HTTPError as error:
            raise Unavailable("the object storage does not answer") from error

    def upload_url(self, key: str, size_bytes: int) -> str:
        """Presigned PUT of exactly so many bytes for a scan host, valid for 15 minutes from now."""
        return self._signer.put_url(f"/{self._bucket}/{key}", size_bytes, datetime.now(UTC), UPLOAD_EXPIRY)

    async def size_of(self, key: str) -> int | None:
        """Size of an object in bytes; None if it is not there."""
        return await asyncio.to_thread(self._size_of, key)

    def _size_of(self, key: str) -> int | None:
        try:
            return self._internal.stat_object(bucket_name=self._bucket, object_name=key).size
        except S3Error as error:
            if error.code in {"NoSuchKey", "NoSuchBucket"}:
                return None
            raise Unavailable(f"object storage: {error.code}") from error
        except HTTPError as error:
            raise Unavailable("the object storage does not answer") from error

    async def put(self, key: str, body: bytes) -> None:
        """Writes an object; repeated with the same content it changes nothing."""
        await asyncio.to_thread(self._put, key, body)

    def _put(self, key: str, body: bytes) -> None:
        try:
            self._internal.put_object(
                bucket_name=self._bucket, object_name=key, data=io.BytesIO(body), length=len(body)
            )
        except (S3Error, HTTPError) as error:
            raise Unavailable("the object storage does not take an object") from error

    async def load(self, key: str, *, size_bytes: int, sha256: bytes) -> bytes:
        """The whole object, checked.

        Raises:
            CorruptObject: it is not there, or not what the row says.
            Unavailable: the server does not answer.
        """
        body = await asyncio.to_thread(self._load, key, size_bytes)
        if len(body) != size_bytes or hashlib.sha256(body).digest() != sha256:
            raise CorruptObject(f"staged object {key} is not the one that was announced")
        return body

    def _load(self, key: str, size_bytes: int) -> bytes:
        if size_bytes > MAX_OBJECT_BYTES:
            raise CorruptObject(f"staged object {key} is larger than {MAX_OBJECT_BYTES} bytes")
        try:
            response = self._internal.get_object(bucket_name=self._bucket, object_name=key)
            try:
                return bytes(response.read(size_bytes + 1))
            finally:
                response.close()
                response.release_conn()
        except S3Error as error:
            if error.code in {"NoSuchKey", "NoSuchBucket"}:
                raise CorruptObject(f"staged object {key} is not there") from error
            raise Unavailable(f"object storage: {error.code}") from error
        except HTTPError as error:
            raise Unavailable("the object storage does not answer") from error

    async def discard(self, keys: list[str]) -> None:
        """Deletes objects; one that is not there is fine. What fails here the orphan sweep finds."""
        if keys:
            await asyncio.to_thread(self._discard, keys)

    def _discard(self, keys: list[str]) -> None:
        try:
            errors = self._internal.remove_objects(
                bucket_name=self._bucket, delete_object_list=[DeleteObject(key) for key in keys]
            )
            for _ in errors:
                continue
        except (S3Error, HTTPError) as error:
            raise Unavailable("the object storage does not answer") from error

    async def page(self, after: str, limit: int) -> list[StoredObject]:
        """Up to `limit` objects whose keys come behind `after`, in the order of their keys."""
        return await asyncio.to_thread(self._page, after, limit)

    def _page(self, after: str, limit: int) -> list[StoredObject]:
        try:
            found = self._internal.list_objects(
                bucket_name=self._bucket, recursive=True, start_after=after or None
            )
            return [
                StoredObject(item.object_name, item.last_modified)
                for item in islice(found, limit)
                if item.object_name
            ]
        except (S3Error, HTTPError) as error:
            raise Unavailable("the object storage does not answer") from error

    async def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix, for sweeps and checks."""
        return await asyncio.to_thread(self._keys, prefix)

    def _keys(self, prefix: str) -> list[str]:
        try:
            found = self._internal.list_objects(bucket_name=self._bucket, prefix=prefix, recursive=True)
            return [item.object_name for item in found if item.object_name]
        except (S3Error, HTTPError) as error:
            raise Unavailable("the object storage does not answer") from error
