"""Every event that there is: a closed tree whose path is the name, `EVENT_CATALOG.job.created`.

Names are `<domain>.<action>` or `<domain>.<part>.<action>`, lower case, past tense. A misspelt leaf is a type
error; a leaf cannot be declared without payload and policy. A leaf whose producer is `RESERVED` has its
name and shape settled, but nothing may publish it yet. The branches are in `runlane.events.leaves`.
Source: Event bridge, The contract.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from runlane.errors import UnknownEvent
from runlane.events import payloads as p
from runlane.events.audit_actions import AUDIT_ACTIONS, OWN_AUDIT_ACTIONS
from runlane.events.leaf import NAME, RESERVED, Leaf, PayloadT
from runlane.events.leaves import automation, delivery, inventory, scanning, trail
from runlane.events.policy import Policy

__all__ = [
    "EVENT_CATALOG",
    "EVENT_POLICY",
    "LEAVES",
    "NAME",
    "RESERVED",
    "Leaf",
    "PayloadT",
    "find_leaf",
    "require_publishable",
]


class _Catalog:
    __slots__ = ()
    workspace: Final = trail.Workspace()
    member: Final = trail.Member()
    permission_group: Final = trail.PermissionGroup()
    api_key: Final = trail.ApiKey()
    network: Final = trail.Network()
    asset_group: Final = trail.AssetGroup()
    tool: Final = trail.Tool()
    operator: Final = trail.Operator()
    report: Final = trail.Report()
    audit: Final = trail.Audit()
    target: Final = inventory.Target()
    asset: Final = inventory.Asset()
    vulnerability: Final = inventory.Vulnerability()
    issue: Final = inventory.Issue()
    scan: Final = scanning.Scan()
    job: Final = scanning.Job()
    worker: Final = scanning.Worker()
    workflow: Final = automation.Workflow()
    project: Final = automation.Project()
    statistic: Final = automation.Statistic()
    notification: Final = delivery.Notification()
    integration: Final = delivery.Integration()
    dead_letter: Final = delivery.DeadLetter()


EVENT_CATALOG: Final = _Catalog()
"""The tree. Producers name its leaves, never strings."""


def _walk(node: object, path: tuple[str, ...]) -> Iterator[tuple[str, Leaf[p.Payload]]]:
    for word, child in vars(type(node)).items():
        if isinstance(child, Leaf):
            yield ".".join((*path, word)), child
        elif not word.startswith("__"):
            yield from _walk(child, (*path, word))


def leaves_of(root: object) -> Mapping[str, Leaf[p.Payload]]:
    """All leaves of a tree by name.

    Raises:
        UnknownEvent: a leaf's name is not its path, or the trail would keep another list.
    """
    found: dict[str, Leaf[p.Payload]] = {}
    for path, leaf in _walk(root, ()):
        if leaf.name != path or not NAME.fullmatch(path):
            raise UnknownEvent(f"the leaf at {path} calls itself {leaf.name}")
        found[path] = leaf
    persisted = {name for name, leaf in found.items() if leaf.policy.persist}
    if other := persisted ^ (AUDIT_ACTIONS | OWN_AUDIT_ACTIONS):
        raise UnknownEvent(f"audited here and not there: {', '.join(sorted(other))}")
    return MappingProxyType(found)


LEAVES: Final = leaves_of(EVENT_CATALOG)
"""All leaves by name; the import fails where `leaves_of` does."""

EVENT_POLICY: Final[Mapping[str, Policy]] = MappingProxyType(
    {name: leaf.policy for name, leaf in LEAVES.items()}
)
"""Policy by name, complete by construction."""


def find_leaf(name: str) -> Leaf[p.Payload] | None:
    """The leaf of that name, None if the catalog has none (any more)."""
    return LEAVES.get(name)


def require_publishable(name: str) -> None:
    """Checks that a producer may publish this event.

    Raises:
        UnknownEvent: the catalog does not declare it, or it is reserved.
    """
    leaf = LEAVES.get(name)
    if leaf is None:
        raise UnknownEvent(f"no event {name!r} in the catalog")
    if leaf.is_reserved:
        raise UnknownEvent(f"event {name!r} is reserved: nothing may publish it yet")
