"""What operators look at: why jobs wait, how far runs are, what attempts run and bring."""

from fastapi import APIRouter

from api.routes import evidence, progress, tail, waits

router = APIRouter()
for view in (waits, progress, evidence, tail):
    router.include_router(view.router)
