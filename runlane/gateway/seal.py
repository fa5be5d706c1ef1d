"""What a worker is given in place of Temporal's own names: bound to it and to this life of it.

A task token of Temporal is an unsigned description of a task, so whoever knows the ids could write one. The
seal in front of it is made from the installation's secret: the same in every gateway and after every restart.
It has no random part: a cancel that is pushed names a task by the token that was given out with it.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from runlane.gateway.faults import no_such_task

_BYTES: Final = 32
_NAME_LENGTH: Final = 32


def sealing_key(pepper: bytes) -> bytes:
    """The key of all seals, from the secret that worker tokens hang on as well."""
    return hmac.digest(pepper, b"runlane gateway", hashlib.sha256)


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals of one life of one worker."""

    key: bytes = field(repr=False)
    worker_id: UUID
    incarnation: UUID

    def wrap(self, kind: str, token: bytes) -> bytes:
        """A token with its seal; empty stays empty."""
        return self._digest(kind, token) + token if token else b""

    def unwrap(self, kind: str, sealed: bytes) -> bytes:
        """The token inside.

        Raises:
            Fault: NOT_FOUND, the seal is not of this life of this worker.
        """
        given, token = sealed[:_BYTES], sealed[_BYTES:]
        if not token or not hmac.compare_digest(given, self._digest(kind, token)):
            raise no_such_task()
        return token

    def name(self, kind: str, given: str) -> str:
        """A name that stands for one of the worker's choice and can be nobody else's; empty stays empty."""
        return self._digest(kind, given.encode()).hex()[:_NAME_LENGTH] if given else ""

    def _digest(self, kind: str, value: bytes) -> bytes:
        owner = f"{kind}\0{self.worker_id}\0{self.incarnation}\0".encode()
        return hmac.digest(self.key, owner + value, hashlib.sha256)
