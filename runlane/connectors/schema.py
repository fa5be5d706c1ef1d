"""The JSON Schema of a manifest, for editors: what can be said of one key by itself.

What `read_manifest` checks beyond it is how the keys fit together, and places in the argument list.
"""

import json
import re
from typing import Final

from runlane.connectors.arguments import MAX_ARGUMENTS, MAX_LENGTH
from runlane.connectors.limits import NUMBERS, WHOLES, Limits
from runlane.connectors.manifest import Input, Network, Output
from runlane.connectors.options import HIGHEST, MAX_OPTIONS, MAX_WORDS, NAME, WORD
from runlane.connectors.reading import DIGEST, PROGRAM, SLUG, VERSION
from runlane.tools import Category, FansOut

_REQUIRED: Final = (
    *("slug", "name", "version", "category", "fans_out", "image", "digest", "entrypoint"),
    *("input", "output", "network"),
)


def manifest_schema() -> str:
    """The schema as a document, keys sorted."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "from `runlane.connectors` by `runlane docs`; edit there",
        "title": "Manifest of a connector",
        **_object(_properties(), _REQUIRED),
    }
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _properties() -> dict[str, object]:
    return {
        "slug": _matching(SLUG, "Id of the tool, as steps name it."),
        "name": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": _matching(VERSION, "Of what the image runs; recorded with each attempt."),
        "category": {"enum": [*Category], "description": "What it finds."},
        "fans_out": {"enum": [*FansOut], "description": "What a step has one job for each of."},
        "image": {"type": "string", "maxLength": 255, "description": "Repository, without tag and digest."},
        "digest": _matching(DIGEST, "Id of the image, or its digest in the repository: no other one runs."),
        "entrypoint": {
            "type": "array",
            "minItems": 1,
            "maxItems": 16,
            "prefixItems": [_matching(PROGRAM, "Program in the image, by its whole path.")],
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH},
        },
        "argv": _texts(MAX_ARGUMENTS, MAX_LENGTH),
        "ipv6": _texts(8, 200),
        "input": {"enum": [*Input]},
        "output": {"enum": [*Output]},
        "network": {"enum": [*Network]},
        "options": {
            "type": "object",
            "maxProperties": MAX_OPTIONS,
            "propertyNames": {"pattern": _whole(NAME)},
            "additionalProperties": {"oneOf": _options()},
        },
        "limits": _object(_limits(), ()),
    }


def _options() -> list[dict[str, object]]:
    whole = {"type": "integer", "minimum": 0, "maximum": HIGHEST}
    word = {"type": "string", "pattern": _whole(WORD)}
    words = {"type": "array", "items": word, "minItems": 1, "maxItems": MAX_WORDS}
    return [
        _object(
            {"type": {"const": "whole"}, "low": whole, "high": whole, "default": whole}, ("type", "default")
        ),
        _object({"type": {"const": "choice"}, "of": words, "default": word}, ("type", "of", "default")),
        _object(
            {"type": {"const": "flag"}, "default": {"type": "boolean"}, "argv": _texts(16, 200)}, ("type",)
        ),
        _object({"type": {"const": "ports"}}, ("type",)),
    ]


def _limits() -> dict[str, object]:
    usual = Limits().as_json()
    kinds = {**dict.fromkeys(WHOLES, "integer"), **dict.fromkeys(NUMBERS, "number")}
    bounds = {**WHOLES, **NUMBERS}
    return {
        name: {"type": kind, "minimum": bounds[name][0], "maximum": bounds[name][1], "default": usual[name]}
        for name, kind in kinds.items()
    }


def _object(properties: dict[str, object], required: tuple[str, ...]) -> dict[str, object]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": sorted(required),
    }


def _texts(most: int, longest: int) -> dict[str, object]:
    text = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"type": "array", "items": text, "maxItems": most}


def _matching(form: re.Pattern[str], description: str) -> dict[str, object]:
    return {"type": "string", "pattern": _whole(form), "description": description}


def _whole(form: re.Pattern[str]) -> str:
    return f"^(?:{form.pattern})$"
