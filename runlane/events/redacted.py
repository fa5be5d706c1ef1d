"""The data of an event without credentials, with a note of which fields were dropped.

The note is `metadata.redactedFields`: so a row of the audit trail says that a password was changed, and an
integration is told the same. It is data, not an attribute, since trail and integrations keep data only.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

from runlane.events.scrub import Scrubbed, scrub_with_paths

METADATA: Final = "metadata"
REDACTED_FIELDS: Final = "redactedFields"

MAX_NOTED: Final = 50
"""Paths that are noted; an event with more of them is no list of fields."""

MAX_PATH: Final = 128
"""Characters of a path; the rest is cut."""

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def scrub_data(data: Mapping[str, object]) -> dict[str, Scrubbed]:
    """A copy of the data without credentials that names the fields it has lost. Idempotent."""
    scrubbed = scrub_with_paths(data)
    kept = cast("dict[str, Scrubbed]", scrubbed.value)  # a mapping comes out as one
    if not scrubbed.dropped:
        return kept
    metadata = kept.setdefault(METADATA, {})
    if isinstance(metadata, dict):
        noted = metadata.get(REDACTED_FIELDS)
        earlier = [str(path) for path in noted] if isinstance(noted, list) else []
        lost = {_UNPRINTABLE.sub("\ufffd", path)[:MAX_PATH] for path in scrubbed.dropped}
        noted_now: list[Scrubbed] = [*sorted({*earlier, *lost})]
        metadata[REDACTED_FIELDS] = noted_now[:MAX_NOTED]
    return kept
