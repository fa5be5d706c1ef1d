"""What killed processes may leave behind: other processes, containers, objects of the buckets, the spool."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import psutil
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.sweeps import Buckets, SweepActivities, SweepTurn
from runlane import names
from runlane.containers.engine import Engine
from runlane.db.pool import Pool
from runlane.storage import Storage
from runlane.sweeps import Bounds, Part, Retention

_AT_ONCE: Final = Retention(results_days=0)
_PARTS: Final = (Part.STAGED_RESULTS, Part.STAGED_OBJECTS, Part.PICTURES)

_REFERRED: Final[Mapping[str, str]] = {
    "results": "SELECT object_key FROM job_results WHERE object_key IS NOT NULL",
    "pictures": "SELECT object_key FROM screenshots",
}


def strays(folder: Path, known: Collection[int]) -> list[str]:
    """Processes that were started for this state folder, but that are none of the known ones or below one."""
    found = []
    for process in psutil.process_iter():
        try:
            state_dir = process.environ().get("RUNLANE_STATE_DIR", "")
            if Path(state_dir).is_relative_to(folder) and not _family(process) & set(known):
                found.append(f"{process.pid} {process.cmdline()}")
        except psutil.Error:
            continue  # gone, or somebody else's
    return found


def _family(process: psutil.Process) -> set[int]:
    return {process.pid, *(parent.pid for parent in process.parents())}


async def containers(folder: Path, engine_url: str) -> list[str]:
    """Containers of scan workers of this state folder; the engine is not asked where none can have any."""
    homes = await asyncio.to_thread(_homes, folder)
    if not homes:
        return []
    engine = await Engine.open(engine_url, 1)
    try:
        return [each for home in homes for each in await engine.labelled({names.CONTAINER_HOME: home})]
    finally:
        engine.close()


def _homes(folder: Path) -> list[str]:
    return [file.read_text(encoding="ascii") for file in folder.glob("**/worker/home")]


def spooled(folder: Path) -> list[Path]:
    """Results that scan workers of this state folder have not delivered yet."""
    return list(folder.glob("**/spool/*.result"))


async def sweep_orphans(pool: Pool, temporal: Client, storage: Storage) -> None:
    """One run of the sweeps that remove staged results and objects, as if all had been there for long."""
    sweeps = SweepActivities(pool, temporal, Buckets(storage, storage), Bounds(_AT_ONCE))
    for part in _PARTS:
        cursor: str | None = ""
        while cursor is not None:
            answer = await ActivityEnvironment().run(sweeps.sweep, SweepTurn(part, cursor))
            cursor = answer.cursor or None


async def missing_objects(pool: Pool, storage: Storage) -> list[str]:
    """Objects that rows refer to, and that are not there. Right at any time: a row goes before its object."""
    missing = {}
    for name, bucket in _buckets(storage).items():
        before = await _referred(pool, name)
        gone = before - set(await bucket.keys())
        missing[name] = gone & await _referred(pool, name)
    return [f"{name}: {key}" for name, keys in missing.items() for key in sorted(keys)]


async def unreferred_objects(pool: Pool, storage: Storage) -> list[str]:
    """Objects that no row refers to; at rest there are none."""
    found = []
    for name, bucket in _buckets(storage).items():
        orphans = set(await bucket.keys()) - await _referred(pool, name)
        found += [f"{name}: {key}" for key in sorted(orphans)]
    return found


def _buckets(storage: Storage) -> dict[str, Storage]:
    return {"results": storage, "pictures": storage.of_pictures()}


async def _referred(pool: Pool, name: str) -> set[str]:
    return {row["object_key"] for row in await pool.fetch(_REFERRED[name])}
