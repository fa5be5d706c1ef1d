"""What a host answers, in the one form that a workflow can always read.

Rows decide what a batch has done, so nothing is lost. But a result of no payload, or of two, cannot be read
by any workflow: its task would fail again and again, and the run would never end.
"""

from typing import Final

import orjson
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.failure.v1 import Failure

from runlane.events import scrub, scrub_text

MOST_BYTES: Final = 16 * 1024
"""Of a payload; what a batch says of itself is a few hundred bytes."""

MOST_TEXT: Final = 2000
"""Characters of a message or a trace."""

_ENCODING: Final = "encoding"
_JSON: Final = b"json/plain"
_NULL: Final = Payload(metadata={_ENCODING: b"binary/null"})


def result(said: Payloads) -> Payloads:
    """Exactly one payload: the one that was said, or nothing as a payload."""
    return Payloads(payloads=_plain(said) or [_NULL])


def details(said: Payloads) -> Payloads:
    """At most one payload."""
    return Payloads(payloads=_plain(said))


def failure(said: Failure) -> Failure:
    """A failure of the tool, with its message and kind; without causes and details."""
    kind = said.application_failure_info
    plain = Failure(message=_text(said.message), stack_trace=_text(said.stack_trace))
    plain.application_failure_info.type = kind.type[:MOST_TEXT]
    plain.application_failure_info.non_retryable = kind.non_retryable
    return plain


def _plain(said: Payloads) -> list[Payload]:
    if len(said.payloads) != 1 or len(said.payloads[0].data) > MOST_BYTES:
        return []
    encoding = said.payloads[0].metadata[_ENCODING][:MOST_TEXT]
    return [Payload(metadata={_ENCODING: encoding}, data=_scrubbed(encoding, said.payloads[0].data))]


def _scrubbed(encoding: bytes, data: bytes) -> bytes:
    """JSON without credentials; what is none nobody reads, and it stays as it is."""
    if encoding != _JSON:
        return data
    try:
        return orjson.dumps(scrub(orjson.loads(data)))
    except orjson.JSONDecodeError:
        return data


def _text(said: str) -> str:
    return scrub_text(said)[:MOST_TEXT]
