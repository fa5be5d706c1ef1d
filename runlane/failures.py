"""Failures of activities, as the core worker reads them from Temporal.

A batch activity runs on a host that is not trusted, and what it fails with ends up in the workflow's history.
Details that cannot be decoded would fail the workflow's task, each time that it is tried, and nothing could
end the run any more. Nobody here reads details, so such a failure is as good as any other.
"""

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from runlane.events import scrub_text

DECODE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RuntimeError)
"""What decoding a payload of unknown origin may raise."""

MAX_TEXT = 4_000
"""Characters of a message or a trace; the rest is cut."""


class BearingFailureConverter(DefaultFailureConverter):
    """Reads any failure, whatever it carries, and writes none with a credential in it.

    A message may quote what a server or a host said, and a history is read by many.
    """

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        """Writes the exception and its causes, each text scrubbed and bounded."""
        super().to_failure(exception, payload_converter, failure)
        written = failure
        while True:
            written.message = scrub_text(written.message)[:MAX_TEXT]
            written.stack_trace = scrub_text(written.stack_trace)[:MAX_TEXT]
            if not written.HasField("cause"):
                return
            written = written.cause

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """The failure as an exception; one whose details cannot be decoded comes without them."""
        try:
            return super().from_failure(failure, payload_converter)
        except DECODE_ERRORS:
            return ApplicationError("the failure cannot be read", type="unreadable")


DATA_CONVERTER = DataConverter(failure_converter_class=BearingFailureConverter)
"""Of the client that serves workflows."""
