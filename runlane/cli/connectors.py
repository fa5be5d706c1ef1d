"""`runlane connector …`: tools that come as an image."""

from pathlib import Path
from typing import Annotated, Final

import typer

from runlane.cli.answers import Json
from runlane.cli.errors import CommandError, ExitCode
from runlane.cli.options import JsonFlag, Reason
from runlane.cli.output import Column, note, print_done, print_fields, print_json
from runlane.cli.profile import open_client
from runlane.cli.rules import Rules

app = typer.Typer(no_args_is_help=True, help="Connectors: tools that come as an image.")

MANIFEST: Final = "manifest.yaml"
RULES = Rules("connectors", (
    Column("NAME", "slug"), Column("VERSION", "version"), Column("FINDS", "category"),
    Column("FROM", "fans_out"), Column("ON", "enabled"), Column("WORKSPACE", "workspace_id"),
    Column("IMAGE", "image"), Column("DIGEST", "digest"),
))  # fmt: skip

Everywhere = Annotated[bool, typer.Option("--everywhere", help="For all workspaces; needs a platform key.")]
Place = Annotated[Path, typer.Argument(metavar="FILE", help="A manifest, or the folder that it is in.")]
Digest = Annotated[
    str | None, typer.Option("--digest", help="sha256:… of the image, in place of what the file says.")
]
Slug = Annotated[str, typer.Argument(metavar="NAME", help="Name of a connector, as steps use it.")]


@app.command("check")
def check(file: Place, digest: Digest = None, as_json: JsonFlag = False) -> None:
    """Read a manifest and add nothing: say all that is wrong with it, or what it says in full."""
    from runlane.connectors import read_manifest

    manifest = read_manifest(_read(file, digest))
    print_done(
        manifest.as_json(),
        f"{manifest.slug} {manifest.version} is a valid connector of {manifest.category}",
        as_json=as_json,
    )


@app.command("add")
def add(
    file: Place,
    digest: Digest = None,
    everywhere: Everywhere = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a connector, or put a new manifest in place of its old one. Its host must allow the digest."""
    from runlane.connectors import read_manifest

    manifest = read_manifest(_read(file, digest)).as_json()
    with open_client() as client:
        done = client.post(RULES.path(everywhere), {"manifest": manifest, "reason": reason})
    _told(done, "added", as_json=as_json)


@app.command("list")
def index(everywhere: Everywhere = False, as_json: JsonFlag = False) -> None:
    """List the connectors that steps may name."""
    RULES.print(everywhere, as_json=as_json)


@app.command("show")
def show(slug: Slug, as_json: JsonFlag = False) -> None:
    """Show a connector and its manifest."""
    import json

    with open_client() as client:
        found = client.get(f"{RULES.path(everywhere=False)}/{slug}")
    if as_json:
        print_json(found)
        return
    keys = ("slug", "tool_id", "version", "category", "fans_out", "enabled", "image", "digest", "changed_at")
    print_fields([(key.upper(), found[key]) for key in keys])
    print(json.dumps(found["manifest"], indent=2))


@app.command("disable")
def disable(
    slug: Slug, everywhere: Everywhere = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Switch a connector off: nothing new of it is begun, what runs is finished."""
    _switch(f"{RULES.path(everywhere)}/{slug}/disable", reason, "switched off", as_json=as_json)


@app.command("enable")
def enable(
    slug: Slug, everywhere: Everywhere = False, reason: Reason = None, as_json: JsonFlag = False
) -> None:
    """Switch a connector on again: jobs that waited for it go on."""
    _switch(f"{RULES.path(everywhere)}/{slug}/enable", reason, "switched on", as_json=as_json)


def _switch(path: str, reason: str | None, what: str, *, as_json: bool) -> None:
    with open_client() as client:
        done = client.post(path, {"reason": reason})
    _told(done, what, as_json=as_json)


def _told(done: Json, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        before = "" if done["is_changed"] else " before"
        note(f"{what}{before}: {done['slug']} {done['version']} ({done['digest']})")


def _read(file: Path, digest: str | None) -> Json:
    """The document of a manifest, with the digest of an image that was built just now."""
    from runlane.connectors import load_manifest

    path = file / MANIFEST if file.is_dir() else file
    try:
        document = load_manifest(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", ExitCode.USAGE) from error
    return {**document} if digest is None else {**document, "digest": digest}
