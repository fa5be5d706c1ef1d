"""References to secrets in options: `{secret_ref: name}` stands where the value would. Pure.

The value takes its place on the host that runs the job, and nowhere before.
"""

from collections.abc import Mapping
from typing import Final

REFERENCE: Final = "secret_ref"
MAX_SECRET_NAME: Final = 100


def is_reference(value: object) -> bool:
    """Whether a value refers to a secret, and is nothing else."""
    if not isinstance(value, Mapping) or value.keys() != {REFERENCE}:
        return False
    name = value[REFERENCE]
    return isinstance(name, str) and 1 <= len(name) <= MAX_SECRET_NAME


def names_in(value: object) -> frozenset[str]:
    """Names of the secrets that options refer to, at whatever depth."""
    found: set[str] = set()
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            if is_reference(each):
                found.add(str(each[REFERENCE]))
            else:
                left += each.values()
        elif isinstance(each, list):
            left += each
    return frozenset(found)


def resolved(value: object, secrets: Mapping[str, str]) -> object:
    """A copy of options with the values of secrets; a reference to one that is not there stays.

    Options are JSON that was read, so their depth is bounded.
    """
    if isinstance(value, Mapping):
        if is_reference(value):
            return secrets.get(str(value[REFERENCE]), value)
        return {key: resolved(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, secrets) for each in value]
    return value
