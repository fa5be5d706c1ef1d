"""Commands that show operators why jobs wait, how far runs are, and what attempts ran and brought."""

import typer

from runlane.cli import evidence, planning, progress, tail, waits


def register(jobs: typer.Typer, runs: typer.Typer) -> None:
    """Adds the commands to their groups."""
    waits.register(jobs, runs)
    evidence.register(jobs)
    tail.register(jobs)
    progress.register(runs)
    planning.register(runs)
