"""The event stream seen from outside: what is pending, how far it reaches back, what server it lives on."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from runlane import names

_DROP_IDLE: Final = """
local groups = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if groups.err then return 0 end
local dropped = 0
for _, consumer in ipairs(groups) do
  local name, pending, idle = consumer[2], consumer[4], consumer[6]
  if name ~= ARGV[3] and pending == 0 and idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
    dropped = dropped + 1
  end
end
return dropped
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is pending in a group: how many entries, and how long the oldest has been on the stream."""

    entries: int
    oldest_s: float | None


class Overlook:
    """Looks at the bus from outside; changes nothing that is in use."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._drop_idle = redis.register_script(_DROP_IDLE)

    async def waiting(self, lane: str) -> Waiting | None:
        """What is pending in the group of a lane, None while it has no group."""
        try:
            found = await self._redis.xpending(names.EVENT_STREAM, lane)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            return None
        oldest = cast("bytes | None", found["min"])
        return Waiting(int(cast("int", found["pending"])), _age_s(oldest) if oldest else None)

    async def reach_s(self) -> float | None:
        """How far the stream reaches back, None when it is empty."""
        page = cast("list[tuple[bytes, object]]", await self._redis.xrange(names.EVENT_STREAM, count=1))
        return _age_s(page[0][0]) if page else None

    async def drop_idle_consumers(self, lane: str, idle: timedelta) -> int:
        """Deletes consumers of a group that hold nothing and were idle for so long; returns how many.

        Looked at and deleted in one step: what a consumer has pending would be gone with it.
        """
        idle_ms = int(idle.total_seconds() * 1000)
        return int(await self._drop_idle(keys=[names.EVENT_STREAM], args=[lane, idle_ms, lane]))


def _age_s(entry_id: bytes) -> float:
    return max(datetime.now(UTC).timestamp() - int(entry_id.partition(b"-")[0]) / 1000, 0.0)
