"""Every error that Runlane raises, in one tree.

```
RunlaneError
├── Refused             the caller is at fault; never retried; HTTP 4xx
│   ├── Invalid         422  the request says something that cannot be
│   ├── Unauthenticated 401  no credential, or one that is not valid
│   ├── Forbidden       403  a valid credential without the right
│   ├── NotFound        404  not there, or in another workspace (the answer is the same)
│   ├── Conflict        409  the state of the thing forbids it now
│   ├── Stale           412  the thing was changed since it was read
│   ├── TooLarge        413  more bytes than the route takes
│   └── Unconditional   428  a change that must say what it was made from
├── Unavailable         503  a server we need does not answer; the same call may go through later
└── Defect              500  our bug: an impossible transition, an unknown event
    ├── ImpossibleTransition
    └── UnknownEvent
```

A lost race is a return value, never an error: see `runlane.jobs`.
"""

from typing import ClassVar


class RunlaneError(Exception):
    """Base of the tree. `code` is stable and meant for programs, `detail` for people."""

    default_code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str, *, code: str | None = None, fields: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code
        self.fields = fields or {}


class Refused(RunlaneError):
    """The request was refused; sending it again unchanged gives the same answer."""

    default_code = "refused"
    status = 400


class Invalid(Refused):
    """The request is well-formed but says something that cannot be. `fields` maps a path to its fault."""

    default_code = "invalid"
    status = 422


class Unauthenticated(Refused):
    """The credential is missing, unknown, expired or revoked."""

    default_code = "unauthenticated"
    status = 401


class Forbidden(Refused):
    """The credential is valid but does not carry the scope."""

    default_code = "forbidden"
    status = 403


class NotFound(Refused):
    """There is no such thing in this workspace."""

    default_code = "not_found"
    status = 404


class Conflict(Refused):
    """The thing exists and its state forbids the request."""

    default_code = "conflict"
    status = 409


class Stale(Refused):
    """The thing was changed since the caller read it."""

    default_code = "etag.stale"
    status = 412


class Unconditional(Refused):
    """The change must say which state of the thing it was made from."""

    default_code = "etag.required"
    status = 428


class TooLarge(Refused):
    """The body is larger than the route accepts."""

    default_code = "body.too_large"
    status = 413


class Unavailable(RunlaneError):
    """A server that we need does not answer now."""

    default_code = "unavailable"
    status = 503
    retryable = True


class Defect(RunlaneError):
    """A bug of ours; someone must look."""

    default_code = "defect"


class ImpossibleTransition(Defect):
    """A state machine was asked for a move that its table does not have."""

    default_code = "defect.transition"


class UnknownEvent(Defect):
    """A producer named an event that the catalog does not declare, or one that is reserved."""

    default_code = "defect.unknown_event"
