"""What must be true of containers after a storm: each was for one attempt, none stays, results count once."""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tests.chaos.containers import Containers, Made, homes
from tests.containers.engines import OPEN_PORTS
from tests.e2e.installation import DYING_LIMIT_S, Installation, until

_ATTEMPTS: Final = """
SELECT a.job_id::text AS job_id, a.attempt, a.outcome FROM job_attempts a
JOIN jobs j ON j.id = a.job_id WHERE j.toolset = 'container'
"""

_OBSERVED: Final = """
SELECT j.id, jsonb_agg(o.ports) FILTER (WHERE o.id IS NOT NULL) AS found
FROM jobs j LEFT JOIN port_observations o ON o.job_id = j.id
WHERE j.run_id = ANY ($1) GROUP BY j.id
"""


async def container_faults(
    installation: Installation, containers: Containers, nmaps: Sequence[UUID]
) -> list[str]:
    """Everything that is wrong, to be asked at rest. `nmaps`: runs over the lab host."""
    known = homes(installation.platform.stack.folder)
    made = containers.account.of(known)

    async def are_gone() -> bool:
        return all(each.id in containers.account.gone for each in made)

    try:
        await until(are_gone, DYING_LIMIT_S)
    except TimeoutError:
        return [f"left: {each}" for each in made if each.id not in containers.account.gone]
    return await _unaccounted(installation, made) + await _merged_otherwise(installation, nmaps)


async def _unaccounted(installation: Installation, made: Sequence[Made]) -> list[str]:
    rows = await installation.pool.fetch(_ATTEMPTS)
    outcomes = {(row["job_id"], row["attempt"]): row["outcome"] for row in rows}
    counts = Counter((each.job_id, each.attempt) for each in made)
    faults = [f"{count} containers for attempt {key}" for key, count in counts.items() if count > 1]
    faults += [f"a container for an attempt {key} that nobody made" for key in counts if key not in outcomes]
    faults += [f"attempt {key} is open" for key, outcome in outcomes.items() if outcome is None]
    faults += [
        f"attempt {key} was completed without a container"
        for key, outcome in outcomes.items()
        if outcome == "completed" and key not in counts
    ]
    return faults


async def _merged_otherwise(installation: Installation, nmaps: Sequence[UUID]) -> list[str]:
    rows = await installation.pool.fetch(_OBSERVED, nmaps)
    expected = [sorted(OPEN_PORTS)]
    return [
        f"nmap of {row['id']} found {row['found']}, not {expected}"
        for row in rows
        if row["found"] is None or [sorted(ports) for ports in row["found"]] != expected
    ]
