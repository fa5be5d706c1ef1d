"""Statistics by day, and summaries of targets and of the workspace: what the projection lane keeps."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query

from api.deps import ForPlatform, ReadInventory, no_query
from api.problems import problems
from api.statistic_schemas import Rebuilt, StatisticQuery, Statistics, TargetSummary, WorkspaceSummary
from runlane.db import statistics, summaries
from runlane.db.engine import driver
from runlane.db.pool import Record
from runlane.errors import NotFound
from runlane.statistics import choose

router = APIRouter(tags=["statistics"])

TargetId = Annotated[UUID, Path(description="id of a target")]

_SEVERITIES = ("info", "low", "medium", "high", "critical")


@router.get("/statistics")
async def index(access: ReadInventory, query: Annotated[StatisticQuery, Query()]) -> Statistics:
    """Lists what was counted on each day, week or month."""
    asked = statistics.Asked(choose(query.metric), query.days, query.until, query.by)
    points = await statistics.read(driver(access.conn), access.workspace_id, asked)
    return Statistics.model_validate({"items": points}, from_attributes=True)


@router.get("/workspace/summary", dependencies=[Depends(no_query)])
async def of_workspace(access: ReadInventory) -> WorkspaceSummary:
    """Says what is known of the workspace: live assets, open findings, jobs of today by outcome."""
    conn = driver(access.conn)
    row = await summaries.of_workspace(conn, access.workspace_id)
    today = await statistics.read_today(conn, access.workspace_id, choose(["jobs"]))
    return WorkspaceSummary.model_validate({**row, "findings": _findings(row), "today": today})


@router.get("/targets/{target_id}/summary", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def of_target(access: ReadInventory, target_id: TargetId) -> TargetSummary:
    """Says what is known of a target: live assets, open findings, its newest run."""
    row = await summaries.of_target(driver(access.conn), access.workspace_id, target_id)
    run = {name: row[f"run_{name}"] for name in ("name", "status", "created_at", "closed_at")}
    last_run = run | {"run_id": row["run_id"]} if row["run_id"] else None
    return TargetSummary.model_validate({**row, "findings": _findings(row), "last_run": last_run})


@router.post("/platform/summaries/rebuild", dependencies=[Depends(no_query)])
async def rebuild(access: ForPlatform) -> Rebuilt:
    """Has the summaries of all targets of all workspaces made anew; needs a platform key. Repeatable."""
    return Rebuilt(marked=await summaries.rebuild(access.conn))


def _findings(row: Record) -> dict[str, object]:
    return {severity: row[severity] for severity in _SEVERITIES}
