"""Keys of third parties that a tool asks: references in options, texts on the host that asks. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runlane.secret_refs import is_reference

MAX_PROVIDERS: Final = 100
MAX_KEYS: Final = 10
"""Of one provider; the tool takes one of them."""

_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,1000}")
"""One word: what reads the file puts variables of the environment in place of words that look like them."""


@dataclass(frozen=True, slots=True)
class ProviderKeys:
    """Type of the option: a key, or a list of them, by the name of a provider."""

    def fault(self, value: object) -> str | None:
        """See `Kind`. Names none of the keys."""
        if not isinstance(value, Mapping) or not 1 <= len(value) <= MAX_PROVIDERS:
            return f"an object of 1 to {MAX_PROVIDERS} providers expected"
        for provider, keys in value.items():
            if not isinstance(provider, str) or not _PROVIDER.fullmatch(provider):
                return "names of providers: lower-case letters, digits and _.- expected"
            if not 1 <= len(_listed(keys)) <= MAX_KEYS or not all(map(_is_key, _listed(keys))):
                return f"{provider}: 1 to {MAX_KEYS} keys without blanks expected"
        return None


def has_written_out(value: object) -> bool:
    """Whether a key stands in the option itself, where everybody reads it."""
    lists = [_listed(keys) for keys in value.values()] if isinstance(value, Mapping) else []
    return any(isinstance(key, str) for keys in lists for key in keys)


def provider_file(value: object) -> bytes:
    """The file of keys that subfinder reads, one line of JSON, which is YAML; empty if there are none."""
    if not isinstance(value, Mapping):
        return b""
    keys = {str(provider): _listed(each) for provider, each in value.items()}
    return json.dumps(keys, separators=(",", ":")).encode()


def _listed(keys: object) -> list[object]:
    return list(keys) if isinstance(keys, list) else [keys]


def _is_key(key: object) -> bool:
    return is_reference(key) or (isinstance(key, str) and _KEY.fullmatch(key) is not None)
