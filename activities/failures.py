"""Errors as Temporal should see them: a stable code, and whether another try can help."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from temporalio.exceptions import ApplicationError

from runlane.errors import RunlaneError, Unavailable


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turns errors of an activity into those of Temporal; a server that does not answer is tried again."""
    try:
        yield
    except RunlaneError as error:
        raise ApplicationError(error.detail, type=error.code, non_retryable=not error.retryable) from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise ApplicationError(str(error), type=Unavailable.default_code) from error
