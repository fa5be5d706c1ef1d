"""Examines the container engine of this host: connectors run in it, if any image is allowed."""

from collections.abc import Collection
from typing import Final

from runlane.containers.engine import Engine
from runlane.errors import Invalid, Unavailable
from runlane.scan.config import read_digests
from runlane.scan.container_host import short
from runlane.settings import Settings
from runlane.stack.findings import Check, Level

_ENGINE: Final = "container engine"
_IMAGES: Final = "connectors"


async def check_containers(settings: Settings) -> list[Check]:
    """The engine, limits that it keeps, the network for connectors, and whether allowed images are there."""
    try:
        allowed = read_digests(settings.scan_images)
    except Invalid as error:
        return [Check(_IMAGES, Level.FAIL, f"RUNLANE_SCAN_IMAGES: {error.detail}")]
    try:
        engine = await Engine.open(settings.engine_url, 1)
    except Unavailable as error:
        if allowed:
            return [Check(_ENGINE, Level.WARN, f"{error.detail}: no connectors run on this host")]
        return [Check(_ENGINE, Level.OK, "none, and none is needed: RUNLANE_SCAN_IMAGES allows no image")]
    try:
        return [await _engine(engine, settings.engine_url), await _images(engine, settings, allowed)]
    except (Invalid, Unavailable) as error:
        return [Check(_ENGINE, Level.WARN, error.detail)]
    finally:
        engine.close()


async def _engine(engine: Engine, url: str) -> Check:
    facts = await engine.facts()
    named = f"{facts.version} (API {facts.api_version}) at {url}"
    if facts.lacks:
        return Check(_ENGINE, Level.WARN, f"{named} cannot limit {', '.join(facts.lacks)}")
    return Check(_ENGINE, Level.OK, named)


async def _images(engine: Engine, settings: Settings, allowed: Collection[str]) -> Check:
    if not allowed:
        return Check(_IMAGES, Level.OK, "RUNLANE_SCAN_IMAGES allows no image: none run on this host")
    driver = await engine.network_driver(settings.scan_network)
    if driver == "host":
        detail = f"RUNLANE_SCAN_NETWORK {settings.scan_network} is the host's own: the worker refuses it"
        return Check(_IMAGES, Level.FAIL, detail)
    absent = [short(digest) for digest in sorted(allowed) if await engine.image(digest) is None]
    if absent and not settings.scan_pull:
        # one that is named by a registry's digest is found by its repository, which only a manifest knows
        return Check(_IMAGES, Level.WARN, f"not found by their id on this host: {', '.join(absent)}")
    if driver is None:
        detail = f"there is no network {settings.scan_network}: connectors that contact targets are sent back"
        return Check(_IMAGES, Level.WARN, detail)
    return Check(_IMAGES, Level.OK, f"{len(allowed)} images may run, on the network {settings.scan_network}")
