"""`runlane docs`: documents that are generated from the program, so that they cannot say something else."""

import json
from collections.abc import Mapping
from pathlib import Path

from api.app import create_app
from runlane.connectors.schema import manifest_schema
from runlane.events.docs import render_events
from runlane.events.schemas import asyncapi_document, event_schemas
from runlane.settings import Settings, example_environment
from runlane.states import render_states


def generated_documents() -> Mapping[Path, str]:
    """Text of every generated document by its place in the repository."""
    return {
        Path("docs/generated/openapi.json"): openapi_document(),
        Path("docs/generated/connector.schema.json"): manifest_schema(),
        Path("docs/generated/events.md"): render_events(),
        Path("docs/generated/events.schema.json"): event_schemas(),
        Path("docs/generated/asyncapi.json"): asyncapi_document(),
        Path("docs/generated/states.md"): render_states(),
        Path(".env.example"): example_environment(),
    }


def openapi_document() -> str:
    """OpenAPI description of the REST interface, keys sorted."""
    schema = create_app(Settings.model_validate({})).openapi()
    schema["x-generated"] = "from the package `api` by `runlane docs`; edit there"
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_docs(root: Path, *, is_check: bool) -> list[Path]:
    """Writes documents that are not as they should be; returns them. With `is_check` nothing is written."""
    changed: list[Path] = []
    for place, text in generated_documents().items():
        path = root / place
        if path.exists() and path.read_text() == text:
            continue
        changed.append(place)
        if not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return changed
