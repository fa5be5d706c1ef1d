"""What operators look at: why jobs wait, what attempts ran and brought."""

from fastapi import APIRouter

from api.routes import evidence, waits

router = APIRouter()
for view in (waits, evidence):
    router.include_router(view.router)
