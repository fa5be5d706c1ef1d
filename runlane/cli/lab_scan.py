"""Scanning a lab through the API, and reading what was found in the form in which the truth is written."""

from runlane.cli.answers import as_object, integer_in, texts_in
from runlane.cli.client import ApiClient, Json
from runlane.definitions import BUILTIN
from runlane.lab.manifest import (
    Inventory,
    Manifest,
    asset_key,
    finding_key,
    picture_key,
    service_key,
    url_key,
    web_key,
)

DEFINITION = "domain_discovery"


def has_browser(client: ApiClient) -> bool:
    """Whether a worker can take pictures."""
    return any("browser" in texts_in(worker, "toolsets") for worker in client.items("/v1/workers"))


def start_scan(client: ApiClient, manifest: Manifest, resolver: str, *, name: str = "demo") -> str:
    """Adds a lab's zone as a target if need be and starts a discovery of it; returns the run's id.

    It takes pictures if the manifest has any.
    """
    config = {
        "*": {"resolver": resolver, "allow": list(manifest.networks)},
        "ports": {"ports": manifest.port_list},
        "findings": {"default_logins": True},
    }
    body: Json = {
        "definition": _with_pictures() if manifest.pictures else DEFINITION,
        "targets": [target_id(client, manifest)],
        "name": name,
        "config": config,
    }
    return str(client.post("/v1/runs", body, once=True)["run_id"])


def target_id(client: ApiClient, manifest: Manifest) -> str:
    """Id of the lab's target, which is added first if need be."""
    known = list(client.items("/v1/targets", {"value": manifest.target}))
    target = known[0] if known else client.post("/v1/targets", {"value": manifest.target})
    return str(target["id"])


def read_inventory(client: ApiClient, manifest: Manifest) -> Inventory:
    """Reads all that is known of the lab's target."""
    query = {"target": target_id(client, manifest)}
    inventory = Inventory()
    for asset in client.items("/v1/assets", query):
        inventory.assets.add(asset_key(str(asset["value"])))
    for service in client.items("/v1/services", query):
        port = integer_in(service, "port")
        inventory.services.add(service_key(str(service["host"]), port, str(service["protocol"])))
        if service["url"] is not None:
            inventory.web.add(web_key(str(service["url"]), integer_in(service, "status")))
    for url in client.items("/v1/urls", query):
        inventory.urls.add(url_key(str(url["url"])))
    for finding in client.items("/v1/findings", query):
        inventory.findings.add(finding_key(str(finding["check_id"]), str(finding["url"])))
    if manifest.pictures:
        for picture in client.items("/v1/screenshots", query):
            inventory.pictures.add(picture_key(str(picture["url"])))
    return inventory


def _with_pictures() -> Json:
    definition = BUILTIN[DEFINITION].as_json()
    step = {"name": "Pictures", "run": "screenshot", "needs": ["http"]}
    return {**definition, "jobs": {**as_object(definition["jobs"]), "pictures": step}}
