"""The `runlane` command.

Command modules import what is heavy inside their functions: a process that runs lanes loads no web framework,
and `--help` loads nothing.
"""

from typing import Annotated

import typer

from runlane.cli import (
    blackouts,
    config_profiles,
    connectors,
    dead_letters,
    definitions,
    events,
    exclusions,
    feeds,
    groups,
    integrations,
    inventory,
    jobs,
    key_rotation,
    keys,
    lanes,
    limits,
    local,
    networks,
    notifications,
    operations,
    pauses,
    processes,
    projects,
    rates,
    rotation,
    runs,
    schedules,
    secrets,
    statistics,
    steps,
    sweeps,
    targets,
    views,
    worker_acts,
)
from runlane.cli.errors import CommandError, from_runlane_error
from runlane.cli.output import print_error
from runlane.errors import RunlaneError

app = typer.Typer(
    name="runlane",
    help="A durable job registry, event bridge and work queue on Temporal.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
local.register(app)
processes.register(app)
app.add_typer(runs.app, name="run")
app.add_typer(definitions.app, name="definition")
app.add_typer(config_profiles.app, name="config-profile")
app.add_typer(secrets.app, name="secret")
app.add_typer(integrations.app, name="integration")
app.add_typer(connectors.app, name="connector")
app.add_typer(schedules.app, name="schedule")
app.add_typer(steps.app, name="step")
app.add_typer(jobs.app, name="job")
app.add_typer(operations.app, name="operation")
app.add_typer(notifications.app, name="notification")
feeds.register(events.app)
app.add_typer(pauses.app, name="pause")
app.add_typer(limits.app, name="limit")
app.add_typer(rates.app, name="rate")
app.add_typer(exclusions.app, name="exclusion")
app.add_typer(blackouts.app, name="blackout")
views.register(jobs.app, runs.app)
app.add_typer(targets.app, name="target")
app.add_typer(groups.app, name="group")
app.add_typer(projects.app, name="project")
app.add_typer(networks.app, name="network")
worker_acts.register(processes.worker_app)
rotation.register(processes.worker_app)
key_rotation.register(keys.key_app)
app.add_typer(processes.worker_app, name="worker")
app.add_typer(sweeps.app, name="sweep")
app.add_typer(events.app, name="event")
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(lanes.app, name="lane")
app.add_typer(keys.key_app, name="key")
app.add_typer(keys.workspace_app, name="workspace")
inventory.register(app)
statistics.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("runlane"))
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """A durable job registry, event bridge and work queue on Temporal."""


def main() -> None:
    """Runs the command line; the exit code says how it ended (see `ExitCode`)."""
    try:
        app()
    except CommandError as error:
        print_error(error)
        raise SystemExit(error.exit_code) from None
    except RunlaneError as error:
        failure = from_runlane_error(error)
        print_error(failure)
        raise SystemExit(failure.exit_code) from None
