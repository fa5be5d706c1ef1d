"""The projects lane: takes in what events are about, and has projects looked at again that others concern."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from runlane.db import memberships
from runlane.db.memberships import About
from runlane.db.pool import Connection
from runlane.events import EVENT_CATALOG, BusEvent, Envelope, Lane
from runlane.projects import RuleKind

_DETECTED: Final = EVENT_CATALOG.vulnerability.detected.name

_SINGLE: Final = frozenset(
    {
        EVENT_CATALOG.asset.discovered.name,
        EVENT_CATALOG.asset.updated.name,
        EVENT_CATALOG.asset.disappeared.name,
        EVENT_CATALOG.asset.service.discovered.name,
        EVENT_CATALOG.asset.service.closed.name,
        EVENT_CATALOG.asset.technology.detected.name,
        _DETECTED,
        EVENT_CATALOG.vulnerability.reopened.name,
        EVENT_CATALOG.vulnerability.resolved.name,
        EVENT_CATALOG.vulnerability.status.updated.name,
    }
)
"""Events about one asset of which something is different now."""

_WHOLE: Final[Mapping[str, tuple[RuleKind, ...]]] = {
    EVENT_CATALOG.project.created.name: (),
    EVENT_CATALOG.project.updated.name: (),
    EVENT_CATALOG.target.updated.name: (RuleKind.TAG, RuleKind.GROUP),
    EVENT_CATALOG.asset_group.updated.name: (RuleKind.GROUP,),
    EVENT_CATALOG.vulnerability.bulk_updated.name: (RuleKind.SEVERITY,),
}
"""Events about any number of assets, with the rules that look at what is different; none: one project's."""


class ProjectsSink:
    """Sink of the projects lane. Source: Event bridge, Lanes."""

    lane = Lane.PROJECTS
    is_ordered = False
    from_oldest = False

    def accepts(self, event_type: str) -> bool:
        """Whether events of this type may bring assets into a project, or out of one."""
        return event_type in _SINGLE or event_type in _WHOLE

    async def handle(self, conn: Connection, events: Sequence[BusEvent]) -> None:
        """Decides about each asset anew: an event that comes again changes nothing."""
        grouped: dict[UUID, list[Envelope]] = defaultdict(list)
        for event in events:
            grouped[event.envelope.workspace_id].append(event.envelope)
        for workspace_id, sent in sorted(grouped.items()):
            await _handle(conn, workspace_id, sent)


async def _handle(conn: Connection, workspace_id: UUID, sent: Sequence[Envelope]) -> None:
    if about := [_about(each) for each in sent if each.type in _SINGLE]:
        await memberships.take_in(conn, workspace_id, about)
    whole = [each for each in sent if each.type in _WHOLE]
    if whole:
        own = [UUID(str(each.data["project_id"])) for each in whole if "project_id" in each.data]
        kinds = sorted({kind for each in whole for kind in _WHOLE[each.type]})
        await memberships.look_again(conn, workspace_id, own, kinds)


def _about(sent: Envelope) -> About:
    ids = (sent.data.get(name) for name in ("asset_id", "service_id", "vulnerability_id", "run_id"))
    asset_id, service_id, finding_id, run_id = (UUID(str(each)) if each else None for each in ids)
    return About(asset_id, service_id, finding_id, run_id, is_found=sent.type == _DETECTED)
