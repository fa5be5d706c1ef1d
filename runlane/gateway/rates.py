"""How many calls a worker may make: a bucket that fills with time."""

from typing import Final

CALLS_PER_S: Final = 300.0
"""More than a host with 128 batches at once needs, and what one gateway process can serve."""

BURST: Final = 600.0


class Bucket:
    """Room for `BURST` calls at once and `CALLS_PER_S` in the long run."""

    def __init__(self, now_s: float) -> None:
        self._room = BURST
        self._filled_at_s = now_s

    def take(self, now_s: float) -> bool:
        """Whether one more call may be made."""
        self._room = min(BURST, self._room + (now_s - self._filled_at_s) * CALLS_PER_S)
        self._filled_at_s = now_s
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True
