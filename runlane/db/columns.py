"""Columns as `tables` and `inventory_tables` have them, and the metadata that holds the tables of both."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, CIDR, JSONB

metadata = MetaData()


def key(name: str = "id") -> Column[object]:
    """An id that every row has."""
    return Column(name, Uuid, nullable=False)


def ref(name: str) -> Column[object]:
    """An id of another row, which may be none."""
    return Column(name, Uuid)


def text(name: str, *, null: bool = False) -> Column[object]:
    """A text."""
    return Column(name, Text, nullable=null)


def integer(name: str, *, null: bool = False) -> Column[object]:
    """A number of 32 bits."""
    return Column(name, Integer, nullable=null)


def large(name: str, *, null: bool = False) -> Column[object]:
    """A number of 64 bits."""
    return Column(name, BigInteger, nullable=null)


def small(name: str) -> Column[object]:
    """A number of 16 bits."""
    return Column(name, SmallInteger, nullable=False)


def flag(name: str, *, null: bool = False) -> Column[object]:
    """True or false."""
    return Column(name, Boolean, nullable=null)


def time(name: str, *, null: bool = False) -> Column[object]:
    """A moment, aware."""
    return Column(name, DateTime(timezone=True), nullable=null)


def json(name: str, *, null: bool = False) -> Column[object]:
    """A value of JSON."""
    return Column(name, JSONB, nullable=null)


def texts(name: str, *, null: bool = False) -> Column[object]:
    """A list of texts."""
    return Column(name, ARRAY(Text), nullable=null)


def ids(name: str) -> Column[object]:
    """A list of ids."""
    return Column(name, ARRAY(Uuid), nullable=False)


def cidrs(name: str) -> Column[object]:
    """A list of networks."""
    return Column(name, ARRAY(CIDR), nullable=False)


def seen(end: str) -> tuple[Column[object], ...]:
    """When something was found first and last, how often it was missed since, and when that was its end."""
    return (time("first_seen"), time("last_seen"), integer("missed"), time(end, null=True))


def digest(name: str, *, null: bool = False) -> Column[object]:
    """A hash, as bytes."""
    return Column(name, LargeBinary, nullable=null)
