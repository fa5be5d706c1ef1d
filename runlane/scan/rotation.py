"""The worker's credential while it runs: the token of the moment, and how it is replaced.

The new token is on disk before it is used, and its first use is what makes it valid for good: whatever is
lost in between, the file and the API agree.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from runlane import names
from runlane.errors import Conflict, Unavailable
from runlane.scan.client import WorkerApi
from runlane.scan.credential import Credential, save_credential

log = structlog.get_logger(__name__)


class Token:
    """The token of the moment; whoever holds a copy is told when there is another one."""

    def __init__(self, value: str) -> None:
        self._value = value
        self._told: list[Callable[[str], None]] = []

    @property
    def value(self) -> str:
        """What is sent with a call."""
        return self._value

    def follow(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` with each later token."""
        self._told.append(tell)

    def unfollow(self, tell: Callable[[str], None]) -> None:
        """Ends that."""
        self._told.remove(tell)

    def replace(self, value: str) -> None:
        """Takes another token, from now on."""
        self._value = value
        for tell in self._told:
            tell(value)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Gets a new token when the API says that one is due."""

    api: WorkerApi
    folder: Path
    worker_id: str
    token: Token
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def renew(self) -> None:
        """Asks for a token, keeps it and uses it. What goes wrong on the way is tried again at the next word.

        Harmless when none is due any more. Calls follow each other: only the last token given out is good.

        Raises:
            Refused: this process is not, or no longer, the worker.
        """
        try:
            async with self._turn:
                await self._renew()
        except Conflict as error:
            if error.code != names.ROTATION_NOT_DUE_CODE:
                raise
            log.info("credential_not_due")

    async def _renew(self) -> None:
        try:
            fresh = await self.api.new_credential()
            save_credential(self.folder, Credential(self.worker_id, fresh))
        except (Unavailable, OSError) as error:
            log.warning("credential_not_renewed", error=str(error))
            return
        self.token.replace(fresh)
        log.info("credential_renewed", worker_id=self.worker_id)
