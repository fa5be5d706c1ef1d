"""${message}."""

from migrations.sql import execute

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """${message}."""
    execute("")
