"""What can go wrong while real servers are started, on top of `runlane.errors`."""

from typing import ClassVar

from runlane import errors


class StackError(errors.Unavailable):
    """A server or process could not be started; `detail` says which, why, and where its log is."""

    default_code: ClassVar[str] = "stack"


class ProcessDied(StackError):
    """A process ended before it was ready; starting it again may help."""


class StackBusy(errors.Conflict):
    """Another supervisor holds this state folder."""

    default_code: ClassVar[str] = "stack.busy"
