"""Logging: structlog and the standard library through one chain, scrubbed last, to standard error.

Call `configure` once at process start. Programs that bring their own set-up (uvicorn) are to be told
to leave logging alone.
"""

import logging
import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from runlane.events import scrub, scrub_text

MAX_FRAMES: Final = 40
"""Frames of a traceback that are shown: the innermost ones."""

MAX_CAUSES: Final = 8
"""Exceptions of a chain or group that are shown."""

QUIET_LOGGERS: Final = ("asyncio", "httpx2", "httpcore2", "uvicorn.access")
"""Loggers of others that only speak from `warning` on."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def configure(log_format: str, level: str) -> None:
    """Sets up all logging of the process. `log_format`: console or json; `level`: lowest that is shown."""
    is_json = log_format == "json"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                render_exception,
                *([] if is_json else [blunt_controls]),
                scrub_event,
                _renderer(is_json=is_json),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _renderer(*, is_json: bool) -> Processor:
    if is_json:
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def render_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turns `exc_info` into text: modules and lines, no source, no paths, no local values."""
    info = event.pop("exc_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(_lines(error))
    return event


def blunt_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces terminal control characters in texts: they may come from a hostile host."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _CONTROL.sub("\ufffd", value)
    return event


def scrub_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drops fields with credential names, masks credentials in values and in texts."""
    return {
        name: scrub_text(value) if isinstance(value, str) else value for name, value in scrub(event).items()
    }


def _lines(error: BaseException) -> Iterator[str]:
    shown = 0
    waiting: list[tuple[str, BaseException]] = [("", error)]
    while waiting and shown < MAX_CAUSES:
        relation, current = waiting.pop(0)
        shown += 1
        yield f"{relation}{type(current).__module__}.{type(current).__qualname__}: {current}"
        yield from _frames(current.__traceback__)
        if isinstance(current, BaseExceptionGroup):
            waiting += [("with ", inner) for inner in current.exceptions]
        if current.__cause__ is not None:
            waiting.append(("from ", current.__cause__))
        elif current.__context__ is not None and not current.__suppress_context__:
            waiting.append(("while handling ", current.__context__))


def _frames(traceback: TracebackType | None) -> Iterator[str]:
    frames: list[str] = []
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "?")
        frames.append(f"  {module}:{traceback.tb_lineno} in {frame.f_code.co_qualname}")
        traceback = traceback.tb_next
    if len(frames) > MAX_FRAMES:
        yield "  …"
    yield from frames[-MAX_FRAMES:]
