"""Tags of many targets at once: added and removed in one statement, whatever is selected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.pool import Connection
from runlane.db.selections import Selection, find_groups, missing_targets, selected
from runlane.errors import Invalid, NotFound
from runlane.tools.target_files import MAX_TAGS, check_tags


@dataclass(frozen=True, slots=True)
class Tagging:
    """Which targets (groups by name or id), and which tags they get and lose."""

    targets: Sequence[UUID] = ()
    groups: Sequence[str] = ()
    tags: Sequence[str] = ()
    add: Sequence[str] = ()
    remove: Sequence[str] = ()


# `$2` is what they get and lose: what is in both is removed.
_RETAG: Final = """
WITH wanted AS (SELECT $2::jsonb AS tags), chosen AS MATERIALIZED (
  SELECT t.id, ARRAY(SELECT tag FROM (
    SELECT unnest(t.tags) UNION SELECT jsonb_array_elements_text(w.tags -> 'add')
    EXCEPT SELECT jsonb_array_elements_text(w.tags -> 'remove')) AS kept (tag) ORDER BY tag) AS tags
  FROM ({source}) source
  JOIN targets t ON t.workspace_id = $1 AND t.id = source.target_id
  CROSS JOIN wanted w
  ORDER BY t.id
  FOR NO KEY UPDATE OF t
), changed AS (
  UPDATE targets SET tags = chosen.tags FROM chosen
  WHERE targets.id = chosen.id AND targets.tags <> chosen.tags
  RETURNING cardinality(targets.tags) AS tags
)
SELECT count(*)::int AS changed, coalesce(max(tags), 0) AS most FROM changed
"""

_MOMENT: Final = "SELECT clock_timestamp()"


async def retag(conn: Connection, workspace_id: UUID, wanted: Tagging, act: Act) -> int:
    """Gives tags to targets and takes others from them; answers how many changed. Repeatable.

    Raises:
        Invalid: `targets.tags`, one is not a tag, or a target would have too many; `targets.none`, nothing
            was said.
        NotFound: `target.not_found`, `group.not_found`.
    """
    add, remove = list(check_tags(wanted.add)), list(check_tags(wanted.remove))
    if not (add or remove) or not (wanted.targets or wanted.groups or wanted.tags):
        raise Invalid("say which targets, and add or remove", code="targets.none", fields={"add": "empty"})
    if missing := await missing_targets(conn, workspace_id, wanted.targets):
        detail = f"not in this workspace: {', '.join(str(each) for each in missing[:5])}"
        raise NotFound(detail, code="target.not_found", fields={"targets": detail})
    groups = await find_groups(conn, workspace_id, wanted.groups)
    source = selected(Selection(wanted.targets, groups, wanted.tags))
    statement = _RETAG.format(source=source.query)
    (done,) = await conn.fetch(statement, workspace_id, {"add": add, "remove": remove}, *source.values)
    if done["most"] > MAX_TAGS:
        detail = f"a target has at most {MAX_TAGS} tags"
        raise Invalid(detail, code="targets.tags", fields={"add": detail})
    if done["changed"]:
        moment = await conn.fetchval(_MOMENT)
        value = " ".join([*(f"+{tag}" for tag in add), *(f"-{tag}" for tag in remove)])
        subject = names.workspace_subject(workspace_id)
        deed = Deed(Action.TARGETS_TAG, workspace_id, subject, ordinal=moment.isoformat(), value=value)
        await outbox.insert(conn, [acted(act, deed)])
    return int(done["changed"])
