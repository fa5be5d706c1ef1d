"""Commands about this machine: run everything, stop it, look whether it is well, show what it can do."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag
from runlane.cli.output import note, print_done, print_json
from runlane.cli.profile import state_dir
from runlane.cli.text import visible

StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Folder of local state; default RUNLANE_STATE_DIR or .runlane."),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the root."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("doctor")(doctor)
    app.command("demo")(demo)
    app.command("docs")(docs)


def up(
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Network that may be scanned besides public addresses."),
    ] = None,
    state: StateDir = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Return when all is up; `runlane down` stops it. Nothing restarts what dies."
        ),
    ] = False,
) -> None:
    """Run the servers and every process on this machine until Ctrl-C."""
    from runlane.cli.up import run_up

    asyncio.run(run_up(state or state_dir(), tuple(allow or ()), is_detached=detach))


def down(state: StateDir = None, as_json: JsonFlag = False) -> None:
    """Stop what `runlane up` started, wherever it was started. Data stays."""
    from runlane.observability import configure
    from runlane.stack.takedown import down as take_down

    configure("console", "warning")
    stopped = asyncio.run(take_down(state or state_dir()))
    print_done(
        {"stopped": stopped},
        f"stopped {', '.join(stopped)}" if stopped else "nothing was running",
        as_json=as_json,
    )


def doctor(
    invariants: Annotated[
        bool, typer.Option("--invariants", help="Also check the invariants of the data (read only).")
    ] = False,
    at_rest: Annotated[
        bool,
        typer.Option("--at-rest", help="With --invariants: nothing is running, so check those for rest too."),
    ] = False,
    state: StateDir = None,
    as_json: JsonFlag = False,
) -> None:
    """Check servers, schema and settings; exit code 10 if something is wrong."""
    from runlane.cli.doctor import SIGNS, run_doctor
    from runlane.stack.findings import Level, worst

    checks = asyncio.run(run_doctor(state or state_dir(), invariants=invariants, at_rest=at_rest))
    if as_json:
        print_json([{"name": each.name, "level": each.level, "detail": each.detail} for each in checks])
    else:
        for each in checks:
            print(f"{SIGNS[each.level]} {visible(each.name):<20} {visible(each.detail)}")
    if worst(checks) is Level.FAIL:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running.")] = False,
    base: Annotated[str, typer.Option("--base", help="Loopback network of the lab.")] = "127.7.0.0/24",
    state: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Folder of the demo; default: `demo` in the folder of local state."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Scan a small real network on this machine and compare what is found with the truth."""
    from runlane.cli.demo import DemoOptions, run_demo

    options = DemoOptions(state or state_dir() / "demo", base, is_kept=keep, is_json=as_json)
    if not asyncio.run(run_demo(options)):
        raise typer.Exit(ExitCode.RUN_FAILED)


def docs(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a file would change.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Root of the repository.")] = Path(),
) -> None:
    """Write the generated documents: OpenAPI, events, the example of the environment."""
    from runlane.cli.docs import write_docs

    changed = write_docs(folder, is_check=check)
    if check and changed:
        names = ", ".join(str(path) for path in changed)
        raise CommandError(f"not up to date: {names}", ExitCode.CHECK_FAILED, hint="runlane docs")
    for path in changed:
        note(f"wrote {path}")
