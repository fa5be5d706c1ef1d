"""The way of results to the API: in the call when small, through the bucket when large.

While neither takes them they lie on disk.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from runlane.errors import Conflict, Refused, TooLarge, Unauthenticated, Unavailable
from runlane.scan.client import WorkerApi, until_answered
from runlane.scan.spool import Package, Spool
from runlane.scan.wire import StageAnswer

log = structlog.get_logger(__name__)

REDELIVER_EVERY_S: Final = 5.0


class Deliverer:
    """Delivers packages. One that the API does not take at once lies in the spool until it does."""

    def __init__(self, api: WorkerApi, spool: Spool, inline_bytes: int) -> None:
        self._api = api
        self._spool = spool
        self._inline_bytes = inline_bytes
        self._in_hand: set[Path] = set()

    async def deliver(self, package: Package, patience_s: float) -> StageAnswer:
        """Delivers a package; a repeated delivery is answered like the first.

        Raises:
            Unavailable: not within `patience_s`; the spool has it and `redeliver` goes on.
            Refused: the API will never take it; it is gone.
        """
        try:
            return await self._send(package)
        except Unavailable:
            path = await self._spool.put(package)
        if path is None:
            return await until_answered(lambda: self._send(package), patience_s)
        self._in_hand.add(path)
        try:
            answer = await until_answered(lambda: self._send(package), patience_s)
        except Refused:
            self._spool.remove(path)
            raise
        finally:
            self._in_hand.discard(path)
        self._spool.remove(path)
        return answer

    async def redeliver(self) -> int:
        """Tries once what lies in the spool, oldest first; returns how many packages went through.

        Raises:
            Refused: this process is not the worker any more.
        """
        taken = 0
        for path in await self._spool.waiting():
            if path in self._in_hand:
                continue
            package = await self._spool.load(path)
            if package is None:
                continue
            try:
                answer = await self._send(package)
            except Unavailable:
                return taken
            except (Unauthenticated, Conflict):
                raise  # said to this process, not of the package
            except Refused as error:
                log.warning("spooled_results_refused", code=error.code, detail=error.detail)
            else:
                taken += 1
                log.info("spooled_results_delivered", jobs=len(answer.accepted), stale=len(answer.stale))
            self._spool.remove(path)
        return taken

    async def redeliver_forever(self) -> None:
        """Empties the spool whenever the API takes something again."""
        while True:
            await self.redeliver()
            await asyncio.sleep(REDELIVER_EVERY_S)

    async def _send(self, package: Package) -> StageAnswer:
        header, body = package.fields, package.body
        if body is None:
            return await self._api.results(header, None)
        if len(body) <= self._inline_bytes:
            with suppress(TooLarge):  # the request as a whole may be too large where the body is not
                return await self._api.results(header, body)
        staged = await self._api.upload(str(header["dispatch_id"]), body)
        located = {"key": staged.key, "size": staged.size, "sha256": staged.sha256}
        return await self._api.results({**header, "object": located}, None)
