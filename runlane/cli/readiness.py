"""When processes of the platform are ready, as its own API tells."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import httpx2

from runlane.cli.answers import as_object, objects_in
from runlane.cli.profile import Profile
from runlane.db.workers import WorkerStatus
from runlane.errors import Unavailable

_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class ApiProbe:
    """Asks the API of a profile."""

    profile: Profile

    async def ready(self) -> None:
        """Returns when the API may be given requests.

        Raises:
            Unavailable: not yet.
        """
        await self.get("/readyz")

    async def get(self, path: str) -> dict[str, object]:
        """The answer to a question.

        Raises:
            Unavailable: none, or one that is an error.
        """
        headers = {"Authorization": f"Bearer {self.profile.api_key}"}
        url = self.profile.api_url
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=_TIMEOUT_S) as client:
            try:
                response = await client.get(path, headers=headers)
            except httpx2.TransportError as error:
                raise Unavailable(f"the API does not answer: {error}") from error
        if not response.is_success:
            raise Unavailable(f"{path} answers {response.status_code}")
        return as_object(response.json())


class WorkerProbe:
    """Whether a scan worker that was just started has joined.

    Nobody has noticed yet that a worker is dead which was killed together with its API: its row says
    `online`. So a worker counts that has joined since `last_join`, and for each later start one that has
    joined since the one that counted before.
    """

    def __init__(self, api: ApiProbe, last_join: datetime | None) -> None:
        self._api = api
        self._last_join = last_join

    async def ready(self) -> None:
        """Returns when a scan worker has joined anew and is on line.

        Raises:
            Unavailable: not yet.
        """
        page = await self._api.get("/v1/workers?limit=200")
        online = [row for row in objects_in(page, "items") if row["status"] == WorkerStatus.ONLINE]
        newest = max((datetime.fromisoformat(str(row["joined_at"])) for row in online), default=None)
        if newest is None or (self._last_join is not None and newest <= self._last_join):
            raise Unavailable("no scan worker has joined and is on line")
        self._last_join = newest
