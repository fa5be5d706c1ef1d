"""Documents that people write, as YAML or JSON: read without surprises and within bounds."""

import re
from collections.abc import Mapping

import orjson
import yaml


class Unreadable(ValueError):
    """The text is no such document; the message says why."""


class _StrictLoader(yaml.CSafeLoader):
    """YAML without surprises: `on` is a text, and so is a date; a key appears once."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[object, object]:
    pairs = [
        (loader.construct_object(key), loader.construct_object(value, deep=True)) for key, value in node.value
    ]
    result = dict(pairs)
    if len(result) != len(pairs):
        raise yaml.constructor.ConstructorError(None, None, "a key appears twice", node.start_mark)
    return result


_SURPRISES = {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"}
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in _SURPRISES]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"), list("tf"))
_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_document(source: bytes | str, what: str, max_bytes: int) -> Mapping[str, object]:
    """The object that a text describes; `what` names it in messages.

    Raises:
        Unreadable: it is too large, neither YAML nor JSON, uses aliases, or is no object.
    """
    if len(source) > max_bytes:
        raise Unreadable(f"{what} is at most {max_bytes} bytes")
    try:
        text = source.decode() if isinstance(source, bytes) else source
        document = orjson.loads(text) if text.lstrip().startswith("{") else _load_yaml(text)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # a key may be a list
        raise Unreadable(f"it cannot be read: {str(error)[:300]}") from error
    if not isinstance(document, dict):
        raise Unreadable("an object is required")
    return document


def _load_yaml(text: str) -> object:
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):  # a few lines of them stand for gigabytes
            raise yaml.YAMLError("aliases are not allowed")
    document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  # a CSafeLoader
    # YAML has sets, bytes and keys that are no text: what is read goes on as JSON
    return orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
