"""Every error as `application/problem+json` with a stable `code`, whoever raised it.

Source: RFC 9457. `code` is for programs, `detail` for people, `fields` maps a path to what is wrong there.
Whatever is not one of our own errors is answered without a word about our insides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, TypeAlias, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import Scope

from api.middleware import request_id_of
from runlane import names
from runlane.db.engine import DRIVER_ERRORS, is_lost
from runlane.db.idempotency import InFlight
from runlane.errors import Invalid, Refused, RunlaneError, Unavailable
from runlane.events import scrub_text

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
MAX_FIELDS: Final = 50
"""Faults that one answer lists; a body with more has a common cause."""

_HTTP_CODES: Final = {400: "request.malformed", 404: "not_found", 405: "method_not_allowed"}
_HTTP_DETAILS: Final = {400: "the body cannot be read as JSON"}
_SCHEMA: Final = {
    "type": "object",
    "title": "Problem",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "for people"},
        "code": {"type": "string", "description": "stable, for programs"},
        "request_id": {"type": "string"},
        "fields": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""OpenAPI entries by HTTP status, as FastAPI takes them."""

log = structlog.get_logger(__name__)


def install(app: FastAPI) -> None:
    """Registers the handlers of all errors, those of the middleware that was added before included."""
    handlers = {
        RunlaneError: _on_runlane_error,
        RequestValidationError: _on_validation_error,
        HTTPException: _on_http_exception,
        **dict.fromkeys(DRIVER_ERRORS, _on_driver_error),
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _on_unexpected)
    app.add_middleware(ExceptionMiddleware, handlers=handlers)


def problems(*kinds: type[RunlaneError]) -> Responses:
    """Makes the OpenAPI entries for errors that a route may answer."""
    entries: Responses = {}
    for kind in kinds:
        text = (kind.__doc__ or "").partition("\n")[0]
        entries[kind.status] = {"description": text, "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
    return entries


@dataclass(frozen=True, slots=True)
class _Problem:
    status: int
    code: str
    detail: str
    fields: Mapping[str, str] = field(default_factory=dict)


def _answer(scope: Scope, problem: _Problem) -> Response:
    request_id = request_id_of(scope)
    body: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": scrub_text(problem.detail),
        "code": problem.code,
        "request_id": request_id,
    }
    if problem.fields:
        # a path may name a credential, it holds none
        listed = islice(problem.fields.items(), MAX_FIELDS)
        body["fields"] = {scrub_text(path): scrub_text(fault) for path, fault in listed}
    return JSONResponse(body, problem.status, {names.REQUEST_ID_HEADER: request_id}, MEDIA_TYPE)


async def _on_runlane_error(request: Request, exception: Exception) -> Response:
    error = cast(RunlaneError, exception)  # registered for this class only
    if isinstance(error, Refused | Unavailable):
        return _refusal(request.scope, error)
    log.error("defect", code=error.code, detail=error.detail, path=request.url.path, exc_info=exception)
    return _internal(request.scope)


def _refusal(scope: Scope, error: RunlaneError) -> Response:
    """Builds the answer for one of our errors."""
    answer = _answer(scope, _Problem(error.status, error.code, error.detail, error.fields))
    if error.status == HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if error.retryable or isinstance(error, InFlight):
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


async def _on_validation_error(request: Request, exception: Exception) -> Response:
    faults = cast(RequestValidationError, exception).errors()  # registered for this class only
    if any(fault["type"] == "json_invalid" for fault in faults):
        return _refusal(request.scope, Refused("the body is not JSON", code="request.malformed"))
    # The value itself is not repeated: it may be a secret in the wrong place, or a megabyte.
    fields = {_path(fault["loc"]): str(fault["msg"])[:300] for fault in faults[:MAX_FIELDS]}
    return _refusal(request.scope, Invalid("the request is not valid", code="request.invalid", fields=fields))


async def _on_http_exception(request: Request, exception: Exception) -> Response:
    error = cast(HTTPException, exception)  # registered for this class only
    code = _HTTP_CODES.get(error.status_code, "refused")
    detail = _HTTP_DETAILS.get(error.status_code, HTTPStatus(error.status_code).description)
    answer = _answer(request.scope, _Problem(error.status_code, code, detail))
    answer.headers.update(error.headers or {})
    return answer


async def _on_driver_error(request: Request, exception: Exception) -> Response:
    if is_lost(exception):
        log.warning("database_away", path=request.url.path, error=type(exception).__name__)
        return _refusal(request.scope, Unavailable("the database does not answer"))
    return await _on_unexpected(request, exception)


async def _on_unexpected(request: Request, exception: Exception) -> Response:
    log.error("request_failed", path=request.url.path, exc_info=exception)
    return _internal(request.scope)


def _internal(scope: Scope) -> Response:
    detail = "the request failed; the log has more under this request id"
    return _answer(scope, _Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail))


def _path(location: tuple[str | int, ...]) -> str:
    return ".".join(str(part)[:64] for part in location[1:]) or str(location[0])
