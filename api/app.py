"""The API as one ASGI application."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI

from api import problems
from api.gate import OPENAPI, Gate
from api.middleware import BodyLimit, RequestId
from api.resources import open_resources
from api.routes import (
    blackouts,
    config_profiles,
    connectors,
    dead_letters,
    definitions,
    deliveries,
    events,
    exclusions,
    feeds,
    figures,
    groups,
    health,
    integrations,
    inventory,
    jobs,
    limits,
    networks,
    notifications,
    operations,
    pauses,
    projects,
    rates,
    runs,
    schedules,
    screenshots,
    secrets,
    statistics,
    steps,
    targets,
    views,
    worker,
    worker_acts,
    workers,
)
from runlane.errors import Forbidden, Invalid, Unauthenticated, Unavailable
from runlane.settings import Settings


def create_app(settings: Settings) -> FastAPI:
    """Builds the application; its lifespan opens the connections (`app.state.resources`) and closes them."""
    app = FastAPI(
        title="Runlane",
        version=version("runlane"),
        description="A durable job registry, event bridge and work queue on Temporal.",
        lifespan=_lifespan(settings),
        docs_url=None,
        redoc_url=None,
        openapi_url=OPENAPI,
        # A slash too many is a wrong address, not a redirect that drops the body.
        redirect_slashes=False,
    )
    # What is added last is outermost: every refusal becomes a problem and has its request's id.
    app.add_middleware(BodyLimit, limit_bytes=settings.body_limit_bytes)
    app.add_middleware(Gate)
    problems.install(app)
    app.add_middleware(RequestId)
    app.include_router(health.router)
    app.include_router(_v1())
    return app


def _v1() -> APIRouter:
    always = problems.problems(Unauthenticated, Forbidden, Invalid, Unavailable)
    router = APIRouter(prefix="/v1", responses=always)
    # routes are tried in order: what every batch calls comes first
    for resource in (
        worker,
        feeds,
        targets,
        networks,
        groups,
        projects,
        runs,
        definitions,
        config_profiles,
        connectors,
        secrets,
        integrations,
        deliveries,
        schedules,
        steps,
        jobs,
        operations,
        notifications,
        pauses,
        limits,
        rates,
        exclusions,
        blackouts,
        views,
        inventory,
        statistics,
        events,
        dead_letters,
        figures,
        screenshots,
        workers,
        worker_acts,
    ):
        router.include_router(resource.router)
    return router


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_resources(settings) as resources:
            app.state.resources = resources
            yield

    return lifespan
