"""`runlane doctor`: is everything here, and does the data hold what it promises?"""

from functools import partial
from pathlib import Path
from typing import Final

from runlane.cli.platform import adopt_running_stack
from runlane.settings import Settings
from runlane.stack.doctor import run_checks
from runlane.stack.findings import Check, Level

SIGNS: Final = {Level.OK: "✓", Level.WARN: "!", Level.FAIL: "✗"}


async def run_doctor(state_dir: Path, *, invariants: bool, at_rest: bool) -> list[Check]:
    """Runs the checks against the stack of the folder, or the servers that the environment names."""
    adopt_running_stack(state_dir)
    more = [partial(_check_invariants, at_rest=at_rest)] if invariants else []
    return await run_checks(Settings.load(), more)
