"""Changes of workflows that earlier histories do not have, by the id that `workflow.patched` is given.

The way of a patch: the version that brings it has both paths, chosen by `workflow.patched`, and a stored
history of each. When no workflow from before can be open any more, which is two minor versions later, the old
path goes and its stored histories with it; `workflow.deprecate_patch` takes the place of the call. The next
version drops the call and its line here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PATCHES: Final[Mapping[str, str]] = MappingProxyType(
    {"admit-aside": "0.1.0: the rest of a large step is admitted by activities beside the main loop"}
)
"""Id → the version that brought it, and what it changed."""
