"""The page about watching tells every reason for which a job may wait."""

import re
from pathlib import Path

from runlane.waiting import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()


def test_every_reason_of_a_pending_job_is_told() -> None:
    _, _, table = PAGE.partition("| reason |")
    rows = table.partition("\n\n")[0].splitlines()[2:]

    told = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(told) == sorted(Reason)
