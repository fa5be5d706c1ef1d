"""Records the shapes of published events for the test of breaking changes: `./dev record-events`.

It adds what is new. What would break a consumer is refused: that needs another `EVENT_SCHEMA_VERSION` first.
"""

import json
import sys
from pathlib import Path

from runlane.events.catalog import LEAVES
from runlane.events.compatibility import Shapes, breaking_changes, shapes_of
from runlane.events.payloads import EVENT_SCHEMA_VERSION

BASELINE = Path(__file__).parent / f"events-v{EVENT_SCHEMA_VERSION}.json"


def recorded() -> Shapes:
    """Shapes as they were published, of the version that is in force."""
    shapes: Shapes = json.loads(BASELINE.read_text())
    return shapes


def main() -> int:
    """Writes the baseline, or says why not."""
    shapes = shapes_of(LEAVES.values())
    broken = breaking_changes(recorded(), shapes) if BASELINE.exists() else []
    if broken:
        sys.stderr.write("\n".join(("breaking, needs another EVENT_SCHEMA_VERSION:", *broken, "")))
        return 1
    BASELINE.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
