"""How the gateway says no. The code decides whether a worker's SDK tries again, drops a task or dies.

| code | means | the SDK |
|-|-|-|
| UNAUTHENTICATED | no credential, a wrong or revoked one, a life that is over | polls again every 10 s |
| PERMISSION_DENIED | a queue, namespace or method not the worker's | drops it; polls again every 10 s |
| NOT_FOUND | a task that is not, or no longer, the worker's | cancels the activity |
| RESOURCE_EXHAUSTED | too many calls or polls | slows down |
| INVALID_ARGUMENT | bytes that are no such message | drops the call |
| UNAVAILABLE | trouble of ours, or a worker whose control stream is broken | tries again soon |
"""

from grpc import StatusCode


class Fault(Exception):
    """A call that ends here, with what its caller is told."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def unauthenticated(detail: str) -> Fault:
    """The credential is not, or no longer, good."""
    return Fault(StatusCode.UNAUTHENTICATED, detail)


def denied(detail: str) -> Fault:
    """The credential is good, but not for this."""
    return Fault(StatusCode.PERMISSION_DENIED, detail)


def no_such_task() -> Fault:
    """The task is not the caller's; whether it is anybody's is not said."""
    return Fault(StatusCode.NOT_FOUND, "no such task of this worker")


def too_many(detail: str) -> Fault:
    """The caller asks for more than it may have at once."""
    return Fault(StatusCode.RESOURCE_EXHAUSTED, detail)


def malformed() -> Fault:
    """What was sent is not the message that the method takes."""
    return Fault(StatusCode.INVALID_ARGUMENT, "malformed")


def unavailable(detail: str) -> Fault:
    """Not now; the same call may go through soon."""
    return Fault(StatusCode.UNAVAILABLE, detail)
