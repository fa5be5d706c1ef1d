"""Dead letters: events that a lane has given up."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query

from api.deps import ForPlatform, ReadEvents, WriteEvents, no_query
from api.event_schemas import (
    ChosenLetters,
    DeadLetter,
    DeadLetterHead,
    LettersQuery,
    LettersTouched,
    UnroutableEntry,
)
from api.problems import problems
from api.schemas import PageOf
from api.view_schemas import Items
from runlane.db import dead_letter_lists
from runlane.db.engine import driver
from runlane.db.paging import MAX_LIMIT
from runlane.errors import NotFound

router = APIRouter(tags=["events"])

LetterId = Annotated[UUID, Path(description="id of a dead letter")]


@router.get("/dead-letters")
async def index(access: ReadEvents, query: Annotated[LettersQuery, Query()]) -> PageOf[DeadLetterHead]:
    """Lists events that lanes have given up; sorts by `created_at`."""
    page = await dead_letter_lists.list_letters(access.conn, access.workspace_id, query.letters, query.page)
    return PageOf[DeadLetterHead].model_validate(page, from_attributes=True)


@router.get("/dead-letters/{letter_id}", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def show(access: ReadEvents, letter_id: LetterId) -> DeadLetter:
    """Shows a dead letter with its envelope."""
    found = await dead_letter_lists.get_letter(access.conn, access.workspace_id, letter_id)
    return DeadLetter.model_validate(found)


@router.post("/dead-letters/redrive", status_code=202, dependencies=[Depends(no_query)])
async def redrive(access: WriteEvents, body: ChosenLetters) -> LettersTouched:
    """Has the lanes of open letters, and no others, handle them once more; what became of it is on each."""
    act = access.act(body.reason)
    done = await dead_letter_lists.redrive(driver(access.conn), access.workspace_id, body.letters, act)
    return LettersTouched(letters=done)


@router.post("/dead-letters/purge", dependencies=[Depends(no_query)])
async def purge(access: WriteEvents, body: ChosenLetters) -> LettersTouched:
    """Removes letters, and their copies on the dead-letter stream."""
    act = access.act(body.reason)
    done = await dead_letter_lists.purge(driver(access.conn), access.workspace_id, body.letters, act)
    return LettersTouched(letters=done)


@router.get("/platform/dead-letters", dependencies=[Depends(no_query)])
async def unroutable(access: ForPlatform) -> Items[UnroutableEntry]:
    """Lists the newest entries that belong to no workspace or no known event; needs a platform key."""
    found = await dead_letter_lists.list_entries(access.conn, MAX_LIMIT)
    return Items(items=[UnroutableEntry.model_validate(each) for each in found])
