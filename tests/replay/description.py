"""The shape of a history: which commands its workflow gave, whatever their order, number and content.

Two histories of one play differ in how often the workflow was called and in which order answers came. They do
not differ in what kinds of commands the code gives: one that is in no stored history is a path that no stored
history replays.
"""

import json
import re
from typing import Final

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

_VARIABLE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
"""What differs from play to play in a text: ids and numbers."""


def describe(history: WorkflowHistory) -> tuple[str, ...]:
    """The kinds of commands in a history, and how it ended; sorted."""
    return tuple(sorted({said for event in history.events if (said := _command(event))}))


def _command(event: HistoryEvent) -> str:
    """What a command is; empty for an event that no command caused."""
    kind = str(event.WhichOneof("attributes")).removesuffix("_event_attributes")
    match kind:
        case "activity_task_scheduled":
            asked = event.activity_task_scheduled_event_attributes
            return f"activity {asked.activity_type.name}"
        case "start_child_workflow_execution_initiated":
            child = event.start_child_workflow_execution_initiated_event_attributes
            return f"child {child.workflow_type.name}"
        case "timer_started":
            return f"timer: {_summary(event)}"
        case "marker_recorded":
            return _marker(event)
        case "upsert_workflow_search_attributes":
            changed = event.upsert_workflow_search_attributes_event_attributes.search_attributes
            return f"search attributes {', '.join(sorted(changed.indexed_fields))}"
        case "activity_task_cancel_requested" | "signal_external_workflow_execution_initiated":
            return kind
        case _ if kind.startswith("workflow_execution_") and kind.endswith(
            ("completed", "failed", "canceled", "continued_as_new")
        ):
            return kind
        case _:
            return ""


def _marker(event: HistoryEvent) -> str:
    """A local activity by its type, a patch by its id."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name == "core_local_activity":
        said = json.loads(marker.details["data"].payloads[0].data)
        return f"local activity {said['activity_type']}"
    if marker.marker_name == "core_patch":
        said = json.loads(marker.details["patch-data"].payloads[0].data)
        return f"patch {said['id']}"
    return f"marker {marker.marker_name}"


def _summary(event: HistoryEvent) -> str:
    data = event.user_metadata.summary.data
    return _VARIABLE.sub("N", json.loads(data)) if data else "without a summary"
