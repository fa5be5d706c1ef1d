"""Examines the servers behind the settings: PostgreSQL, Redis, S3 and Temporal."""

import asyncio
import io
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import redis.asyncio
import redis.exceptions
import urllib3
from minio import Minio
from minio.error import MinioException

from runlane import names
from runlane.db import schema
from runlane.db.roles import describe_role
from runlane.settings import Settings
from runlane.stack.findings import ANSWER_TIMEOUT_S, Check, Level

MINIMUM_POSTGRES: Final = 18
"""uuidv7() and column lists in SET NULL."""
MINIMUM_REDIS: Final = (7, 0)
"""The commands that the bus uses."""
UNSET: Final = "not set; start with `runlane up`, or give its address"


async def check_postgres(settings: Settings) -> list[Check]:
    """Reachability and rights of the three roles, the version, and the revision of the schema."""
    roles = {
        "owner": (settings.database_url, False),
        "runlane_api": (settings.database_api_url, False),
        "runlane_system": (settings.database_system_url, True),
    }
    answers = await asyncio.gather(
        *(_role(name, url, may_bypass=bypass) for name, (url, bypass) in roles.items())
    )
    checks = [check for answer in answers for check in answer]
    return [*checks, *await _schema(settings)]


async def check_redis(settings: Settings) -> list[Check]:
    """One primary that never evicts and keeps what it was told."""
    if not settings.redis_url:
        return [Check("redis", Level.FAIL, f"RUNLANE_REDIS_URL {UNSET}")]
    client = redis.asyncio.Redis.from_url(settings.redis_url, socket_timeout=ANSWER_TIMEOUT_S)
    try:
        info = await client.info()
    except (redis.exceptions.RedisError, OSError) as error:
        return [Check("redis", Level.FAIL, f"unreachable: {error}")]
    finally:
        await client.aclose()
    return _judge_redis({str(name): str(value) for name, value in info.items()})


async def check_s3(settings: Settings) -> list[Check]:
    """Writes, reads and deletes one object."""
    if not settings.s3_endpoint:
        return [Check("s3", Level.FAIL, f"RUNLANE_S3_ENDPOINT {UNSET}")]
    try:
        await asyncio.to_thread(_round_trip, settings)
    except (MinioException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return [Check("s3", Level.FAIL, f"bucket {names.RESULTS_BUCKET}: {error}")]
    return [Check("s3", Level.OK, f"bucket {names.RESULTS_BUCKET} can be written at {settings.s3_endpoint}")]


async def _role(name: str, url: str, *, may_bypass: bool) -> list[Check]:
    title = f"postgres as {name}"
    if not url:
        return [Check(title, Level.FAIL, UNSET)]
    try:
        connection = await asyncpg.connect(url, timeout=ANSWER_TIMEOUT_S)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return [Check(title, Level.FAIL, f"unreachable: {error}")]
    try:
        role = await describe_role(connection)
    finally:
        await connection.close()
    if role.server_major < MINIMUM_POSTGRES:
        return [Check(title, Level.FAIL, f"PostgreSQL {MINIMUM_POSTGRES} or later is needed")]
    if role.may_bypass != may_bypass:
        wrong = "does not see every workspace" if may_bypass else "row-level security does not bind it"
        return [Check(title, Level.FAIL, f"wrong rights: {wrong} (BYPASSRLS)")]
    return [Check(title, Level.OK, role.server_version)]


async def _schema(settings: Settings) -> list[Check]:
    if not settings.database_url:
        return []
    head = schema.head()
    try:
        connection = await asyncpg.connect(settings.database_url, timeout=ANSWER_TIMEOUT_S)
        try:
            found = await schema.revision_of(connection)
        finally:
            await connection.close()
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return [Check("schema", Level.FAIL, f"unknown: {error}")]
    if found is None:
        return [Check("schema", Level.FAIL, "empty database; run `runlane migrate`")]
    if found != head:
        return [Check("schema", Level.FAIL, f"at {found}, not {head}; run `runlane migrate`")]
    return [Check("schema", Level.OK, f"at {head}")]


def _judge_redis(info: Mapping[str, str]) -> list[Check]:
    version = info.get("valkey_version") or info.get("redis_version", "0")
    compatible = tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2])
    faults = {
        "redis cluster": (
            info.get("cluster_enabled") == "1",
            "Redis Cluster is not supported",
        ),
        "redis role": (info.get("role") != "master", "this is a replica: events cannot be published here"),
        "redis version": (
            compatible < MINIMUM_REDIS,
            f"{version} is older than {'.'.join(map(str, MINIMUM_REDIS))}",
        ),
        "redis memory": (
            info.get("maxmemory_policy") != "noeviction",
            f"maxmemory-policy is {info.get('maxmemory_policy')}: events may be evicted; set noeviction",
        ),
    }
    checks = [Check(name, Level.FAIL, detail) for name, (is_fault, detail) in faults.items() if is_fault]
    if info.get("aof_enabled") != "1":
        detail = "no append-only file: after a crash the stream is refilled from the outbox, which takes time"
        checks.append(Check("redis durability", Level.WARN, detail))
    return checks or [Check("redis", Level.OK, f"version {version}, noeviction, append-only file")]


def _round_trip(settings: Settings) -> None:
    parts = urlsplit(settings.s3_endpoint)
    key, body = f"doctor/{secrets.token_hex(8)}", b"runlane doctor"
    with urllib3.PoolManager(timeout=ANSWER_TIMEOUT_S, retries=False) as pool:
        client = Minio(
            parts.netloc,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            secure=parts.scheme == "https",
            region=settings.s3_region,
            http_client=pool,
        )
        client.put_object(names.RESULTS_BUCKET, key, io.BytesIO(body), len(body))
        try:
            if _read_object(client, key) != body:
                raise ValueError("an object came back changed")
        finally:
            client.remove_object(names.RESULTS_BUCKET, key)


def _read_object(client: Minio, key: str) -> bytes:
    response = client.get_object(names.RESULTS_BUCKET, key)
    try:
        return bytes(response.read())
    finally:
        response.release_conn()
