"""Which deeds are done in a storm: a seed decides which and when, the rows of the moment to what."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from runlane.cli.client import Json
from runlane.cli.lab_scan import target_id
from runlane.jobs import Priority
from tests.chaos.containers import Containers
from tests.chaos.deeds import Operator, Request, Said, Tells
from tests.chaos.load import ACTED, NOOP, SECRET, target_names
from tests.e2e.installation import AWAY, Installation

HELD_S: Final = (0.5, 5.0)
"""How long dispatch is stopped, narrowed or forbidden."""

Deed: TypeAlias = Callable[[], Awaitable[None]]

_OPEN_RUN: Final = "SELECT id FROM job_histories WHERE closed_at IS NULL ORDER BY id"
_ACTED_RUN: Final = "SELECT id FROM job_histories WHERE kind = $1 ORDER BY id DESC LIMIT 5"
_CLOSED_RUN: Final = (
    "SELECT id FROM job_histories WHERE kind = $1 AND closed_at IS NOT NULL ORDER BY id DESC LIMIT 5"
)
_JOB: Final = """
SELECT j.id FROM jobs j JOIN job_histories h ON h.id = j.run_id
WHERE h.closed_at IS NULL AND j.completed_at IS NULL ORDER BY j.id LIMIT 200
"""
_ACTED_JOB: Final = """
SELECT j.id FROM jobs j JOIN job_histories h ON h.id = j.run_id
WHERE h.kind = $1 ORDER BY j.id DESC LIMIT 80
"""
_WORKER: Final = "SELECT id FROM workers ORDER BY id"

# what stops or narrows dispatch: where it is listed, and how one of them ends
_ENDED_BY: Final[Mapping[str, tuple[str, Tells]]] = {
    "/v1/pauses": ("lift", Tells.NOT),
    "/v1/blackouts": ("remove", Tells.ALWAYS),
    "/v1/limits": ("remove", Tells.ALWAYS),
    "/v1/rates": ("remove", Tells.ALWAYS),
    "/v1/exclusions": ("remove", Tells.ALWAYS),
}


class People:
    """Does deeds at random until it is stopped, and then sees to it that nothing stays forbidden."""

    def __init__(self, operator: Operator, containers: Containers | None, seed: int) -> None:
        self._operator = operator
        self._installation: Installation = operator.installation
        self._containers = containers
        self._dice = random.Random(seed)
        self._toolsets = ["probe"] if containers is None else ["probe", "container"]
        self._count = 0
        self._group = ""
        self._schedule = ""
        self._lab_target = ""

    async def prepare(self) -> None:
        """Makes what deeds and load are about; before anything is struck."""
        operator = self._operator
        if self._containers is not None:
            for manifest in self._containers.manifests():
                await self._require(Request("/v1/connectors", {"manifest": manifest}, tells=Tells.CHANGED))
        await self._set_secret()
        target = await operator.make("/v1/targets", {"value": "fired.test"})
        self._group = str((await operator.make("/v1/groups", {"name": "chaos", "tags": [NOOP]}))["id"])
        run = {"name": "fired", "jobs": {"only": {"run": "noop", "config": {"sleep_ms": 50}}}}
        schedule: Json = {"name": "chaos", "definition": run, "targets": [target["id"]], "cron": "0 0 1 1 *"}
        self._schedule = str((await operator.make("/v1/schedules", schedule))["id"])
        installation = self._installation
        self._lab_target = await asyncio.to_thread(target_id, installation.api, installation.lab.manifest)

    async def run(self, gap_s: float, stop: asyncio.Event) -> None:
        """Returns when `stop` is set and all that was forbidden is allowed again."""
        deeds, weights = zip(*self._deeds().items(), strict=True)
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                await asyncio.sleep(self._dice.expovariate(1 / gap_s))
                group.create_task(_known(self._dice.choices(deeds, weights)[0]))
        for path in _ENDED_BY:
            await self._end_all(path)
        await self._enable_all()

    def _deeds(self) -> dict[Deed, int]:
        deeds: dict[Deed, int] = {
            self._prioritise_run: 2,
            self._prioritise_job: 2,
            self._pause_run: 2,
            self._pause_toolset: 2,
            self._pause_all: 1,
            self._forbid: 3,
            self._limit: 2,
            self._rate: 2,
            self._exclude: 1,
            self._set_secret: 2,
            self._regroup: 1,
            self._rotate: 2,
            self._fire: 2,
            self._cancel_run: 1,
            self._cancel_step: 1,
            self._cancel_job: 3,
            self._cancel_many: 1,
            self._rerun_job: 2,
            self._rerun_run: 1,
        }
        return {**deeds, self._disable: 1} if self._containers is not None else deeds

    async def _prioritise_run(self) -> None:
        if (run_id := await self._pick(_OPEN_RUN)) is not None:
            step = self._dice.choice(["", "/steps/first", "/steps/only"])
            await self._act(Request(f"/v1/runs/{run_id}{step}/priority", self._priority(), tells=Tells.NOT))

    async def _prioritise_job(self) -> None:
        if (job_id := await self._pick(_JOB)) is not None:
            await self._act(Request(f"/v1/jobs/{job_id}/priority", self._priority(), tells=Tells.NOT))

    async def _pause_run(self) -> None:
        if (run_id := await self._pick(_OPEN_RUN)) is None:
            return
        await self._act(Request(f"/v1/runs/{run_id}/pause", tells=Tells.REASON))
        await self._hold()
        await self._insist(Request(f"/v1/runs/{run_id}/resume"))

    async def _pause_toolset(self) -> None:
        toolset = self._dice.choice(self._toolsets)
        await self._stop("/v1/pauses", Request("/v1/pauses", {"toolset": toolset}, tells=Tells.REASON))

    async def _pause_all(self) -> None:
        await self._stop("/v1/pauses", Request("/v1/pauses", tells=Tells.REASON))

    async def _forbid(self) -> None:
        """A window that gives back what runs, or lets it finish."""
        now = datetime.now(UTC)
        about = self._dice.choice([{}, {"tag": NOOP}, {"group": "chaos"}, {"target_id": self._lab_target}])
        window = {
            **about,
            "starts_at": (now - timedelta(minutes=1)).isoformat(),
            "ends_at": (now + timedelta(hours=1)).isoformat(),
            "policy": self._dice.choice(["cancel", "cancel", "finish"]),
        }
        await self._stop("/v1/blackouts", Request("/v1/blackouts", window))

    async def _limit(self) -> None:
        toolset = self._dice.choice(self._toolsets)
        limit = {"toolset": toolset, "max_in_progress": self._dice.randint(2, 6), "per_minute": self._new}
        await self._stop("/v1/limits", Request("/v1/limits", limit, "PUT"))

    async def _rate(self) -> None:
        rate = {"target_id": self._lab_target, "per_second": self._new}
        await self._stop("/v1/rates", Request("/v1/rates", rate, "PUT"))

    async def _exclude(self) -> None:
        host = self._dice.choice(target_names(ACTED))
        excluded = Request("/v1/exclusions", {"kind": "host", "value": host}, tells=Tells.REASON)
        await self._stop("/v1/exclusions", excluded)

    async def _set_secret(self) -> None:
        await self._act(Request(f"/v1/secrets/{SECRET}", {"value": f"value-{self._new}"}, "PUT"))

    async def _regroup(self) -> None:
        members = {"values": self._dice.sample(target_names(ACTED), 5)}
        way = self._dice.choice(["members", "members/remove"])
        await self._act(Request(f"/v1/groups/{self._group}/{way}", members, tells=Tells.CHANGED))

    async def _rotate(self) -> None:
        if (worker_id := await self._pick(_WORKER)) is not None:
            await self._act(Request(f"/v1/workers/{worker_id}/rotate", tells=Tells.NOT))

    async def _fire(self) -> None:
        await self._act(Request(f"/v1/schedules/{self._schedule}/run", is_keyed=True))

    async def _cancel_run(self) -> None:
        if (run_id := await self._pick(_ACTED_RUN, ACTED)) is not None:
            await self._act(Request(f"/v1/runs/{run_id}/cancel", tells=Tells.NOT))

    async def _cancel_step(self) -> None:
        if (run_id := await self._pick(_ACTED_RUN, ACTED)) is not None:
            step = self._dice.choice(["first", "second"])
            await self._act(Request(f"/v1/runs/{run_id}/steps/{step}/cancel", tells=Tells.NOT))

    async def _cancel_job(self) -> None:
        if (job_id := await self._pick(_ACTED_JOB, ACTED)) is not None:
            await self._act(Request(f"/v1/jobs/{job_id}/cancel", tells=Tells.CHANGED))

    async def _cancel_many(self) -> None:
        if (run_id := await self._pick(_ACTED_RUN, ACTED)) is not None:
            status = self._dice.choice(["pending", "in_progress"])
            await self._act(Request("/v1/jobs/cancel", {"run": run_id, "status": status}, is_keyed=True))

    async def _rerun_job(self) -> None:
        if (job_id := await self._pick(_ACTED_JOB, ACTED)) is not None:
            await self._act(Request(f"/v1/jobs/{job_id}/rerun", tells=Tells.CHANGED, is_keyed=True))

    async def _rerun_run(self) -> None:
        if (run_id := await self._pick(_CLOSED_RUN, ACTED)) is not None:
            await self._act(Request(f"/v1/runs/{run_id}/rerun", tells=Tells.CHANGED, is_keyed=True))

    async def _disable(self) -> None:
        assert self._containers is not None
        slug = self._dice.choice([each["slug"] for each in self._containers.manifests()])
        await self._act(Request(f"/v1/connectors/{slug}/disable", tells=Tells.CHANGED))
        await self._hold()
        await self._enable_all()

    async def _stop(self, path: str, request: Request) -> None:
        await self._act(request)
        await self._hold()
        await self._end_all(path)

    async def _end_all(self, path: str) -> None:
        """Also those whose making was answered to nobody."""
        way, tells = _ENDED_BY[path]
        for row in await self._operator.items(path):
            await self._insist(Request(f"{path}/{row['id']}/{way}", tells=tells))

    async def _enable_all(self) -> None:
        for row in await self._operator.items("/v1/connectors"):
            if not row["enabled"]:
                await self._insist(Request(f"/v1/connectors/{row['slug']}/enable", tells=Tells.CHANGED))

    async def _hold(self) -> None:
        await asyncio.sleep(self._dice.uniform(*HELD_S))

    async def _act(self, request: Request) -> Said:
        return await self._operator.act(request)

    async def _insist(self, request: Request) -> Said:
        return await self._operator.insist(request)

    async def _require(self, request: Request) -> None:
        said = await self._insist(request)
        assert said.is_accepted, said

    async def _pick(self, query: str, *arguments: object) -> str | None:
        rows = await self._installation.pool.fetch(query, *arguments)
        return str(self._dice.choice(rows)["id"]) if rows else None

    def _priority(self) -> Json:
        return {"priority": self._dice.choice(list(Priority))}

    @property
    def _new(self) -> int:
        """A number that was not used before, large enough to hinder nothing for long."""
        self._count += 1
        return 2_000 + self._count


async def _known(deed: Deed) -> None:
    """Does a deed, unless the rows that it would be about cannot be read now."""
    try:
        await deed()
    except AWAY:
        return
