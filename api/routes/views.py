"""What operators look at: why jobs wait."""

from fastapi import APIRouter

from api.routes import waits

router = APIRouter()
router.include_router(waits.router)
