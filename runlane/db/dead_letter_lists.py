"""Dead letters as people see them: lists, one letter, redrive and purge. A lane does what was asked."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.dead_letters import LetterStatus
from runlane.db.paging import Orders, Page, PageRequest, Statement, fetch_page
from runlane.db.pool import Connection
from runlane.db.tables import dead_letters
from runlane.errors import Invalid, NotFound

CHUNK: Final = 500
"""Letters of one redrive or purge at most."""

_ORDERS: Final[Orders] = {"created_at": (dead_letters.c.created_at, dead_letters.c.id)}

_CHOOSE: Final = """
WITH chosen AS (
  SELECT id FROM dead_letters
  WHERE workspace_id = $1 AND status = ANY($2::text[])
    AND ($3::uuid[] IS NULL OR id = ANY($3)) AND ($4::text IS NULL OR lane = $4)
    AND ($5::text IS NULL OR type = $5)
  ORDER BY created_at, id LIMIT $6 FOR UPDATE
)
"""

_ASK: Final = f"""
{_CHOOSE}
UPDATE dead_letters d SET status = '{LetterStatus.ASKED}', asked_at = clock_timestamp(), asked_by = $7
FROM chosen WHERE d.id = chosen.id
RETURNING d.id
"""

_PURGE: Final = f"""
{_CHOOSE}
UPDATE dead_letters d SET status = '{LetterStatus.PURGING}' FROM chosen WHERE d.id = chosen.id
RETURNING d.id
"""


_ENTRIES: Final = """
SELECT id, lane, entry_id, type, fields, error, created_at FROM dead_letters
WHERE workspace_id IS NULL ORDER BY created_at DESC, id DESC LIMIT $1
"""


@dataclass(frozen=True, slots=True)
class Letters:
    """Which letters. None: whatever it is."""

    ids: list[UUID] | None = None
    lane: str | None = None
    type: str | None = None
    status: LetterStatus | None = None
    since: datetime | None = None
    until: datetime | None = None


async def list_letters(
    conn: AsyncConnection, workspace_id: UUID, which: Letters, request: PageRequest
) -> Page:
    """Lists the letters of a workspace. Index: dead_letters_list.

    Raises:
        Invalid: `sort.unknown`, `cursor.invalid`.
    """
    return await fetch_page(conn, _fitting(workspace_id, which), _ORDERS, request)


def _fitting(workspace_id: UUID, which: Letters) -> Statement:
    table = dead_letters.c
    statement = select(dead_letters).where(
        table.workspace_id == workspace_id, table.status != LetterStatus.PURGING
    )
    for column, value in ((table.lane, which.lane), (table.type, which.type), (table.status, which.status)):
        if value is not None:
            statement = statement.where(column == value)
    if which.since is not None:
        statement = statement.where(table.created_at >= which.since)
    if which.until is not None:
        statement = statement.where(table.created_at < which.until)
    return statement


async def get_letter(conn: AsyncConnection, workspace_id: UUID, letter_id: UUID) -> dict[str, object]:
    """Reads one letter with its envelope.

    Raises:
        NotFound: `dead_letter.not_found`.
    """
    statement = _fitting(workspace_id, Letters()).where(dead_letters.c.id == letter_id)
    row = (await conn.execute(statement)).mappings().one_or_none()
    if row is None:
        raise NotFound("no such dead letter", code="dead_letter.not_found")
    return dict(row)


async def redrive(conn: Connection, workspace_id: UUID, which: Letters, act: Act) -> int:
    """Asks the lanes of letters to handle them once more, up to `CHUNK` of them; answers how many.

    Letters that were redriven, or are to be, are left as they are, so a second call changes nothing.

    Raises:
        Invalid: `filter.empty`.
    """
    _require_choice(which)
    actor = act.actor.id if act.actor else None
    found = await conn.fetch(_ASK, *_choice(workspace_id, [LetterStatus.OPEN], which), actor)
    await _tell(conn, workspace_id, Action.DEAD_LETTERS_REDRIVE, len(found), act)
    return len(found)


async def purge(conn: Connection, workspace_id: UUID, which: Letters, act: Act) -> int:
    """Has letters removed, and their copies on the stream, up to `CHUNK` of them; answers how many.

    Raises:
        Invalid: `filter.empty`.
    """
    _require_choice(which)
    status = [LetterStatus.OPEN, LetterStatus.ASKED, LetterStatus.REDRIVEN]
    found = await conn.fetch(_PURGE, *_choice(workspace_id, status, which))
    await _tell(conn, workspace_id, Action.DEAD_LETTERS_PURGE, len(found), act)
    return len(found)


async def list_entries(conn: Connection, limit: int) -> list[dict[str, object]]:
    """The newest entries of the stream that belong to no workspace or no known event; for the platform."""
    return [dict(row) for row in await conn.fetch(_ENTRIES, limit)]


def _require_choice(which: Letters) -> None:
    if which.ids is None and which.lane is None and which.type is None:
        raise Invalid("say which letters", code="filter.empty", fields={"filter": "empty"})


def _choice(workspace_id: UUID, status: list[LetterStatus], which: Letters) -> tuple[object, ...]:
    return workspace_id, status, which.ids, which.lane, which.type, CHUNK


async def _tell(conn: Connection, workspace_id: UUID, action: Action, letters: int, act: Act) -> None:
    if not letters:
        return
    moment = await conn.fetchval("SELECT uuidv7()")
    deed = Deed(
        action, workspace_id, names.workspace_subject(workspace_id), ordinal=str(moment), value=str(letters)
    )
    await outbox.insert(conn, [acted(act, deed)])
