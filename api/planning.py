"""Plans of runs: a draft in the caller's transaction, and who would serve it."""

from api.deps import Access
from api.resources import Resources
from api.view_schemas import RunPlan
from runlane.db.engine import driver
from runlane.db.routes import routes_of
from runlane.db.run_requests import RunRequest
from runlane.db.views.plan import draft_run, plan_of


async def plan_run(access: Access, opened: Resources, request: RunRequest) -> RunPlan:
    """Says what a request would start; nothing of it stays.

    Raises:
        Refused: for the same reasons as a start.
    """
    draft = await draft_run(driver(access.conn), request)
    # shared workers belong to no workspace, so only the system role sees how many there are
    async with opened.system_pool.acquire() as conn:
        routes = [
            await routes_of(conn, access.workspace_id, toolset, allow_shared=draft.allow_shared)
            for toolset in draft.toolsets
        ]
    return RunPlan.model_validate(plan_of(draft, routes), from_attributes=True)
