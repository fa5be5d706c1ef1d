"""Whether jobs of a run can end within their limits at the rates that cover them: asked when it starts."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from runlane.db.pool import Connection
from runlane.definitions import Definition, StepDefinition
from runlane.errors import Invalid
from runlane.rates import PACED
from runlane.tools.workloads import limit_s, need_per_s, probes_of

_LOWEST: Final = """
SELECT r.per_second FROM rates r
WHERE r.workspace_id IS NULL
   OR (r.workspace_id = $1 AND r.target_id IS NULL AND r.network_id IS NULL)
   OR (r.workspace_id = $1 AND r.target_id IN (SELECT rt.target_id FROM run_targets rt WHERE rt.run_id = $2))
   OR (r.workspace_id = $1 AND r.network_id IN (
         SELECT t.network_id FROM run_targets rt JOIN targets t ON t.id = rt.target_id WHERE rt.run_id = $2))
ORDER BY r.per_second LIMIT 1
"""


async def require_time(conn: Connection, workspace_id: UUID, run_id: UUID, definition: Definition) -> None:
    """Passes if no rate is so low that jobs of a step would run into their limit however they share it.

    No statement if the steps send little. A rate that is set later is met by the jobs as it is.

    Raises:
        Invalid: `rate.too_low`, with a field for each step.
    """
    needs = {step.step_id: need_per_s(step.tool_id, step.config) for step in definition.steps}
    if max(needs.values(), default=1) <= 1:
        return
    lowest = await conn.fetchval(_LOWEST, workspace_id, run_id)
    faults = dict(_faults(definition, lowest)) if lowest is not None else {}
    if faults:
        raise Invalid("a rate leaves jobs too little time", code="rate.too_low", fields=faults)


def _faults(definition: Definition, lowest: int) -> Iterator[tuple[str, str]]:
    for step in definition.steps:
        need = need_per_s(step.tool_id, step.config)
        if step.tool_id in PACED and need > lowest:
            yield f"jobs.{step.step_id}", _told(step, lowest, need)


def _told(step: StepDefinition, lowest: int, need: int) -> str:
    probes = probes_of(step.tool_id, step.config) or 0
    return (
        f"{probes} packets at {lowest} a second take {probes // lowest} s, and a job may take "
        f"{limit_s(step.tool_id, step.config):g} s: fewer ports, or a rate of {need}"
    )
