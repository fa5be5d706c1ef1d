"""How a command ends: exit codes, and errors that say what, why, and what to try."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from runlane.errors import Conflict, Forbidden, Invalid, NotFound, RunlaneError, Unauthenticated, Unavailable


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAUTHENTICATED = 4
    REFUSED = 5
    UNREACHABLE = 6
    RUN_FAILED = 7
    RUN_CANCELLED = 9
    CHECK_FAILED = 10
    TIMED_OUT = 124
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Cause:
    """What the API, or a function of ours, said of an error for programs; all of it may be empty."""

    code: str = ""
    request_id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Path → what is wrong there."""


class CommandError(Exception):
    """Ends a command. `hint` is the next command to try."""

    def __init__(self, message: str, exit_code: ExitCode, *, cause: Cause = Cause(), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.cause = cause
        self.hint = hint


def exit_code_of_status(status: int) -> ExitCode:
    """Exit code of an HTTP status that is no success."""
    match status:
        case 401:
            return ExitCode.UNAUTHENTICATED
        case 404:
            return ExitCode.NOT_FOUND
        case _ if status >= 500:
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.REFUSED


def from_runlane_error(error: RunlaneError) -> CommandError:
    """Translates an error of a command that works without the API."""
    match error:
        case NotFound():
            exit_code = ExitCode.NOT_FOUND
        case Unauthenticated():
            exit_code = ExitCode.UNAUTHENTICATED
        case Invalid() | Forbidden() | Conflict():
            exit_code = ExitCode.REFUSED
        case Unavailable():
            exit_code = ExitCode.UNREACHABLE
        case _:
            exit_code = ExitCode.UNEXPECTED
    return CommandError(error.detail, exit_code, cause=Cause(error.code, fields=error.fields))
