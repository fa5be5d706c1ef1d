"""Keyset paging: a page begins behind the last row of the one before, so rows that arrive shift nothing."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson
from sqlalchemy import ColumnElement, Select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane.errors import Invalid

MAX_LIMIT: Final = 200
_MAX_CURSOR: Final = 2_000
_MAX_INTEGER: Final = 2**31
_YEARS: Final = range(1970, 9000)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page a reader asks for."""

    limit: int = 50
    after: str | None = None
    """Cursor of the page before; opaque to the reader."""
    sort: str | None = None
    """Name of an order, with a leading `-` for descending; None: the list's own order."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as column name → value, and the cursor of the next page; None at the end."""

    items: list[dict[str, object]]
    next: str | None


Statement: TypeAlias = Select[Any]
"""A query of rows whose types only the database knows."""

SortKey: TypeAlias = ColumnElement[Any]
"""A column, or an expression of columns, that rows are sorted by."""

Orders: TypeAlias = Mapping[str, tuple[SortKey, ...]]
"""Name of an order → its columns, none of them ever NULL, the last one unique."""


async def fetch_page(
    conn: AsyncConnection, statement: Statement, orders: Orders, request: PageRequest
) -> Page:
    """Runs a list query for one page. The first of `orders`, descending, is the list's own order.

    Raises:
        Invalid: no such order (`sort.unknown`), or a cursor that this list and order did not give
            (`cursor.invalid`).
    """
    sort = request.sort or f"-{next(iter(orders))}"
    columns = orders.get(sort.removeprefix("-"))
    if columns is None:
        detail = f"sort is one of {', '.join(orders)}, or one of them with a leading -"
        raise Invalid(detail, code="sort.unknown", fields={"sort": detail})
    descending = sort.startswith("-")
    if request.after is not None:
        key, place = tuple_(*columns), tuple_(*_read_cursor(request.after, sort, columns))
        statement = statement.where(key < place if descending else key > place)
    statement = statement.order_by(*(c.desc() if descending else c.asc() for c in columns))
    labelled = [column.label(f"_key{number}") for number, column in enumerate(columns)]
    rows = (await conn.execute(statement.add_columns(*labelled).limit(request.limit + 1))).mappings().all()
    kept = rows[: request.limit]
    more = len(rows) > request.limit
    cursor = _write_cursor(sort, [kept[-1][label.name] for label in labelled]) if more else None
    return Page([{k: v for k, v in row.items() if not k.startswith("_key")} for row in kept], cursor)


def _write_cursor(sort: str, values: list[object]) -> str:
    # asyncpg's UUID is a subclass that orjson does not know
    return base64.urlsafe_b64encode(orjson.dumps([sort, *values], default=str)).decode().rstrip("=")


def _read_cursor(cursor: str, sort: str, columns: tuple[SortKey, ...]) -> list[object]:
    values = _unpack(cursor)
    if values[:1] == [sort] and len(values) == len(columns) + 1:
        try:
            return [_read_value(value, column) for value, column in zip(values[1:], columns, strict=True)]
        except (ValueError, TypeError) as error:
            raise _invalid_cursor() from error
    raise _invalid_cursor()


def _unpack(cursor: str) -> list[object]:
    try:
        raw = base64.b64decode(cursor[:_MAX_CURSOR] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        values = orjson.loads(raw)
    except (ValueError, binascii.Error) as error:  # a text that is not ASCII is a ValueError as well
        raise _invalid_cursor() from error
    return values if isinstance(values, list) else []


def _invalid_cursor() -> Invalid:
    detail = "after must be the cursor that the page before gave, with the same sort"
    return Invalid(detail, code="cursor.invalid", fields={"after": detail})


def _read_value(value: object, column: SortKey) -> object:
    """Reads a cursor's value for a column. Anybody can write a cursor, so it must be one of the column."""
    kind = column.type.python_type
    if kind is UUID:
        return UUID(str(value))
    if kind is datetime:
        moment = datetime.fromisoformat(str(value))
        if moment.tzinfo is None or moment.year not in _YEARS:
            raise ValueError("not a moment of ours")
        return moment
    match value:
        case str() if kind is str and "\0" not in value:
            return value
        case int() if kind is int and not isinstance(value, bool) and abs(value) < _MAX_INTEGER:
            return value
        case _:
            raise TypeError("of another type")
