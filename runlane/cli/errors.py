"""How a command ends: exit codes, and errors that say what, why, and what to try."""

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


class CommandError(Exception):
    """Ends a command. `code` and `request_id` are the API's, `hint` is the next command to try."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode,
        *,
        code: str = "",
        request_id: str = "",
        hint: str = "",
        fields: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code
        self.request_id = request_id
        self.hint = hint
        self.fields = fields or {}


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
    return CommandError(error.detail, exit_code, code=error.code, fields=error.fields)
