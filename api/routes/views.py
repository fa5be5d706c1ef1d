"""What operators look at: why jobs wait, how far runs are, what attempts ran and brought."""

from fastapi import APIRouter

from api.routes import evidence, progress, waits

router = APIRouter()
for view in (waits, progress, evidence):
    router.include_router(view.router)
