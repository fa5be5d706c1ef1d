"""The event stream in Redis or Valkey: publish in steps of exactly one, read by group, dead-letter.

All commands of the bus are here, for servers from Redis 7.0 and Valkey 8 on, one primary. Replies are those
of protocol 2. A publish is never repeated by the client library: the relay decides what to send again.
"""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import orjson
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.utils import HIREDIS_AVAILABLE

from runlane import names
from runlane.errors import Invalid

log = structlog.get_logger(__name__)

RETENTION: Final = timedelta(days=7)
"""A stream that nobody writes to expires after this. Source: Event bridge, Delivery guarantees."""

DLQ_CAP: Final = 10_000
"""Entries kept on one dead-letter stream."""

DLQ_RETENTION: Final = timedelta(days=30)
"""A dead-letter stream that nobody writes to expires after this."""

UNROUTABLE_CAP: Final = 1_000
"""Entries kept on the stream of those that belong to no workspace."""

UNROUTABLE: Final = "_unroutable"
"""Dead-letter stream of entries that belong to no workspace or to no known event."""

COMMAND_TIMEOUT_S: Final = 5.0
"""How long a command may take, beyond what it blocks by itself."""

OLDEST_SERVER: Final = (7, 0)
"""Version of the protocol's server whose commands are used."""

Fields: TypeAlias = Mapping[bytes, bytes]

_PUBLISH: Final = """
local stream, base, cap, ttl_ms = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local last, upper = nil, '+'
while not last do
  local page = redis.call('XREVRANGE', stream, upper, '-', 'COUNT', 10)
  if #page == 0 then break end
  for _, entry in ipairs(page) do
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'sequence' then last = tonumber(entry[2][i + 1]) end
    end
    if last then break end
  end
  upper = '(' .. page[#page][1]
end
local begun = 0
if not last then
  if base < 1 then return {0, -1, 0} end
  last = base - 1
  begun = 1
end
local accepted = 0
for _, entry in ipairs(cjson.decode(ARGV[4])) do
  if tonumber(entry[1]) ~= last + 1 then break end
  redis.call('XADD', stream, 'MAXLEN', '~', cap, '*', unpack(entry, 2))
  last = last + 1
  accepted = accepted + 1
end
if accepted > 0 then redis.call('PEXPIRE', stream, ttl_ms) end
return {accepted, last, begun}
"""


_DEAD_LETTER: Final = """
local letters, index, key, cap, ttl_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if redis.call('ZSCORE', index, key) then return 0 end
local id = redis.call('XADD', letters, 'MAXLEN', '~', cap, '*', unpack(cjson.decode(ARGV[4])))
redis.call('ZADD', index, string.match(id, '^%d+'), key)
redis.call('ZREMRANGEBYRANK', index, 0, -tonumber(cap) - 1)
redis.call('PEXPIRE', letters, ttl_ms)
redis.call('PEXPIRE', index, ttl_ms)
return 1
"""

_TAKE_BACK: Final = """
local letters, index, key = KEYS[1], KEYS[2], ARGV[1]
local at = redis.call('ZSCORE', index, key)
if not at then return 0 end
redis.call('ZREM', index, key)
for _, entry in ipairs(redis.call('XRANGE', letters, at, at)) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'dlqkey' and entry[2][i + 1] == key then
      return redis.call('XDEL', letters, entry[1])
    end
  end
end
return 0
"""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest entry of the bus."""

    sequence: int
    event_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """Answer to a publish: how many were taken, and the newest sequence now (None: the stream is empty).

    `begun`: the stream was empty and started anew with this publish.
    """

    accepted: int
    last: int | None
    begun: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as read; without fields when it was trimmed while it was pending."""

    id: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that was delivered and not acknowledged; without sequence when it was trimmed."""

    id: str
    sequence: int | None


@dataclass(frozen=True, slots=True)
class Letter:
    """An event that a lane gives up. `key` names it, `notes` say why; without owner it is unroutable."""

    owner: UUID | None
    key: str
    fields: Mapping[str, str]
    notes: Mapping[str, str]


class GroupLost(Exception):
    """The consumer group is gone, and with it what was pending."""


def connect(url: str, *, block_s: float = 0.0) -> Redis:
    """A client of one connection whose reads may block for `block_s`. It repeats nothing by itself."""
    return Redis.from_url(
        url,
        protocol=2,
        max_connections=1,
        socket_timeout=block_s + COMMAND_TIMEOUT_S,
        socket_connect_timeout=COMMAND_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


async def examine_server(redis: Redis) -> None:
    """Checks that the bus can live on this server, and says in the log what it is.

    Raises:
        Invalid: it is a cluster, whose keys share no slot; it is too old; replies are parsed in Python.
    """
    if not HIREDIS_AVAILABLE:
        raise Invalid("hiredis is not installed: replies would take five times as long", code="redis.hiredis")
    info: Mapping[str, object] = await redis.info()
    if int(str(info.get("cluster_enabled", 0))):
        raise Invalid("the event bus needs one Redis primary, not a cluster", code="redis.cluster")
    version = str(info.get("redis_version", "0.0"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise Invalid(f"the event bus needs Redis 7.0 or Valkey 8, not {version}", code="redis.version")
    log.info("redis_found", version=version, valkey=info.get("valkey_version"))
    if info.get("maxmemory_policy") != "noeviction":
        log.warning("redis_may_evict", policy=info.get("maxmemory_policy"))


class Publisher:
    """Writes the bus. Two of them may live at once: the script takes each sequence number once."""

    def __init__(self, redis: Redis, *, cap: int) -> None:
        self._redis = redis
        self._cap = cap
        self._script = redis.register_script(_PUBLISH)

    async def publish(
        self, events: Sequence[tuple[int, Mapping[str, str]]], base: int | None = None
    ) -> Published:
        """Appends (sequence, fields) in order, as far as each is the newest plus one.

        `base` is the number that an empty stream may begin with; None: an empty stream takes nothing.
        Repeating it after a lost reply is harmless: nothing is taken, `last` says where the stream is.
        """
        batch = [
            [str(sequence), *(text for field in fields.items() for text in field)]
            for sequence, fields in events
        ]
        ttl_ms = int(RETENTION.total_seconds() * 1000)
        accepted, last, begun = await self._script(
            keys=[names.EVENT_STREAM], args=[base or 0, self._cap, ttl_ms, orjson.dumps(batch)]
        )
        return Published(accepted, None if last < 0 else last, bool(begun and accepted))

    async def remove(self, last: int) -> None:
        """Deletes the stream if its newest sequence is still `last`. Its groups make themselves anew."""
        newest = await self.newest()
        if newest is not None and newest.sequence == last:
            await self._redis.delete(names.EVENT_STREAM)

    async def newest(self) -> Newest | None:
        """The newest entry that has a sequence, None when there is none."""
        upper = "+"
        while page := _entries(await self._redis.xrevrange(names.EVENT_STREAM, upper, "-", count=10)):
            for entry in page:
                if entry.fields.get(b"sequence", b"").isdigit():
                    event_id = entry.fields.get(b"id", b"").decode(errors="replace")
                    return Newest(int(entry.fields[b"sequence"]), event_id)
            upper = f"({page[-1].id}"
        return None


class LaneReader:
    """Reads the bus as one consumer group. The consumer's name is fixed, so a successor inherits what is
    pending at once."""

    def __init__(self, redis: Redis, lane: str) -> None:
        self._redis = redis
        self._lane = lane
        self._failures = f"{names.EVENT_STREAM}:failures:{lane}"
        self._claim_from: Any = "0-0"
        self._dead_letter = redis.register_script(_DEAD_LETTER)
        self._take_back = redis.register_script(_TAKE_BACK)

    async def read_pending(self, count: int, after: str = "0") -> list[Entry]:
        """The oldest entries behind `after` that were delivered and not acknowledged."""
        return await self._read(after, count, None)

    async def read_new(self, count: int, block: timedelta | None) -> list[Entry]:
        """Entries never delivered before; waits up to `block` for the first (None: not at all)."""
        return await self._read(">", count, None if block is None else int(block.total_seconds() * 1000))

    async def _read(self, after: str, count: int, block_ms: int | None) -> list[Entry]:
        with _group_at(self._lane):
            reply = await self._redis.xreadgroup(
                self._lane, self._lane, {names.EVENT_STREAM: after}, count=count, block=block_ms
            )
        streams = cast("list[tuple[bytes, object]]", reply)  # one stream was asked for; protocol 2: a list
        return _entries(streams[0][1]) if streams else []

    async def claim_idle(self, count: int, idle: timedelta) -> list[Entry]:
        """Pending entries that nobody touched for `idle`; the next call goes on behind them.

        Those that were trimmed meanwhile are off the pending list, and come as entries without fields.
        """
        with _group_at(self._lane):
            cursor, claimed, trimmed = await self._redis.xautoclaim(
                names.EVENT_STREAM,
                self._lane,
                self._lane,
                min_idle_time=int(idle.total_seconds() * 1000),
                start_id=self._claim_from,
                count=count,
            )
        self._claim_from = cursor
        return [*(Entry(entry_id.decode(), {}) for entry_id in trimmed), *_entries(claimed)]

    async def untried(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of `entries` at whose event no attempt is counted."""
        if not entries:
            return []
        keys = [_attempts_of(entry) for entry in entries]
        counts = await cast("Awaitable[list[bytes | None]]", self._redis.hmget(self._failures, keys))
        return [entry for entry, count in zip(entries, counts, strict=True) if not int(count or 0)]

    async def oldest_pending(self) -> Pending | None:
        """The oldest entry that was delivered and not acknowledged, None when there is none."""
        with _group_at(self._lane):
            found = await self._redis.xpending_range(names.EVENT_STREAM, self._lane, "-", "+", 1)
        if not found:
            return None
        entry_id = cast("bytes", found[0]["message_id"])
        page = _entries(await self._redis.xrange(names.EVENT_STREAM, entry_id, entry_id))
        digits = page[0].fields.get(b"sequence", b"") if page else b""
        return Pending(entry_id.decode(), int(digits) if digits.isdigit() else None)

    async def ensure_group(self) -> None:
        """Makes the group, reading from the start of the stream.

        Source: Event bridge, Delivery guarantees.
        """
        try:
            await self._redis.xgroup_create(names.EVENT_STREAM, self._lane, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        else:
            log.info("group_created", lane=self._lane)

    async def acknowledge(self, entry_ids: Sequence[str], attempted: Sequence[int] = ()) -> None:
        """Takes entries off the pending list, and forgets the attempts at the events `attempted`."""
        if attempted:
            await self._redis.hdel(self._failures, *map(str, attempted), *map(_first_of, attempted))
        if entry_ids:
            await self._redis.xack(names.EVENT_STREAM, self._lane, *entry_ids)

    async def count_attempt(self, sequence: int) -> int:
        """Counts one more attempt at an event and returns how many that makes; survives a crash."""
        return int(await self._redis.hincrby(self._failures, str(sequence), 1))

    async def uncount_attempt(self, sequence: int) -> None:
        """Takes an attempt back: it was not the event's fault."""
        await self._redis.hincrby(self._failures, str(sequence), -1)

    async def note_failure(self, sequence: int) -> None:
        """Remembers when an event failed first; survives a crash."""
        await self._redis.hsetnx(self._failures, _first_of(sequence), datetime.now(UTC).isoformat())

    async def first_failure(self, sequence: int) -> datetime | None:
        """When an event failed first, None when nothing is remembered of it."""
        found = await cast("Awaitable[bytes | None]", self._redis.hget(self._failures, _first_of(sequence)))
        return None if found is None else datetime.fromisoformat(found.decode())

    async def dead_letter(self, letter: Letter) -> None:
        """Copies an event to the dead-letter stream of its workspace, or to that of the unroutable.

        A second call for the same letter writes nothing: the turn that gives an event up may be repeated.
        """
        cap = DLQ_CAP if letter.owner else UNROUTABLE_CAP
        record = {**letter.fields, **letter.notes, "dlqlane": self._lane, "dlqkey": letter.key}
        pairs = orjson.dumps([text for field in record.items() for text in field])
        ttl_ms = int(DLQ_RETENTION.total_seconds() * 1000)
        await self._dead_letter(keys=_letter_keys(letter.owner), args=[letter.key, cap, ttl_ms, pairs])

    async def take_back(self, owner: UUID | None, key: str) -> None:
        """Removes the copy of a letter from its dead-letter stream, if it is still there. Repeatable."""
        await self._take_back(keys=_letter_keys(owner), args=[key])


def _first_of(sequence: int) -> str:
    return f"{sequence}/first"


def _letter_keys(owner: UUID | None) -> list[str]:
    name = str(owner) if owner else UNROUTABLE
    return [names.DLQ_PREFIX + name, names.DLQ_INDEX_PREFIX + name]


@contextmanager
def _group_at(lane: str) -> Iterator[None]:
    """Says in one way that the group, or the whole stream, is not there."""
    try:
        yield
    except ResponseError as error:
        if not str(error).startswith(("NOGROUP", "UNBLOCKED")):
            raise
        log.warning("group_lost", lane=lane)
        raise GroupLost(lane) from error


def _attempts_of(entry: Entry) -> str:
    """Under which name the attempts at an entry's event are counted; a foreign entry has none."""
    digits = entry.fields.get(b"sequence", b"")
    return str(int(digits)) if digits.isdigit() else "0"


def _entries(reply: object) -> list[Entry]:
    """The one place that knows the shape of entries in a reply of protocol 2."""
    pairs = cast("list[tuple[bytes, Fields | None]]", reply)  # the client's types cover all protocols at once
    return [Entry(entry_id.decode(), fields or {}) for entry_id, fields in pairs]
