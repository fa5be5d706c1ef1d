"""Profiles of options: what a step of a tool takes by naming one, under its own options.

A run takes the options when it begins and keeps them; a later change of the profile is for later runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from runlane import names
from runlane.connectors import Connector
from runlane.db import connectors
from runlane.db.acts import Act, Action
from runlane.db.paging import Orders, Page, PageRequest, fetch_page
from runlane.db.pool import Connection, Record
from runlane.db.rule_deeds import RuleDeed, tell
from runlane.db.tables import tool_profiles
from runlane.definitions import CREDENTIAL_FAULT, Definition, option_faults
from runlane.errors import Conflict, Invalid, NotFound
from runlane.tools import TOOLS

MAX_PROFILES: Final = 500
"""Of a workspace."""

MAX_BYTES: Final = 64 * 1024
"""Options of one profile, as JSON."""

ORDERS: Final[Orders] = {
    "created_at": (tool_profiles.c.id,),
    "name": (tool_profiles.c.name, tool_profiles.c.id),
    "tool": (tool_profiles.c.tool_id, tool_profiles.c.id),
}


@dataclass(frozen=True, slots=True)
class NewProfile:
    """Options of a tool under a name."""

    workspace_id: UUID
    tool_id: str
    name: str
    options: Mapping[str, object]


_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('config_profiles/' || $1::uuid::text, 0))"
_COUNT: Final = "SELECT count(*) FROM tool_profiles WHERE workspace_id = $1 AND (tool_id, name) <> ($2, $3)"

_SAVE: Final = """
INSERT INTO tool_profiles (workspace_id, tool_id, name, options) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, tool_id, name) DO UPDATE SET options = excluded.options
RETURNING id, tool_id, name, options, created_at, old.options IS NOT DISTINCT FROM new.options AS is_same
"""

_DELETE: Final = """
DELETE FROM tool_profiles WHERE workspace_id = $1 AND id = $2
RETURNING id, tool_id, name, options, created_at
"""

_FIND: Final = """
SELECT p.tool_id, p.name, p.options FROM tool_profiles p
JOIN (SELECT DISTINCT * FROM unnest($2::text[], $3::text[])) AS w (tool_id, name)
  ON p.tool_id = w.tool_id AND p.name = w.name
WHERE p.workspace_id = $1
"""


async def save_profile(conn: Connection, wanted: NewProfile, act: Act) -> dict[str, object]:
    """Saves options under a tool and a name, in place of those that were there. Repeatable.

    Raises:
        Invalid: `tool.unknown`; `config_profile.invalid`, with every fault of the options;
            `definition.inline_secret`, all of these are credentials; `config_profile.too_large`.
        Conflict: `config_profile.too_many`.
    """
    connector = await _connector(conn, wanted)
    _check(wanted, connector)
    tool_id = wanted.tool_id if connector is None else connector.tool_id
    key = (wanted.workspace_id, tool_id, wanted.name)
    await conn.execute(_LOCK, wanted.workspace_id)
    if await conn.fetchval(_COUNT, *key) >= MAX_PROFILES:
        detail = f"a workspace has at most {MAX_PROFILES} profiles"
        raise Conflict(detail, code="config_profile.too_many")
    (row,) = await conn.fetch(_SAVE, *key, dict(wanted.options))
    if not row["is_same"]:
        await _say(conn, wanted.workspace_id, row, act, Action.CONFIG_PROFILE)
    return dict(row)


async def delete_profile(
    conn: Connection, workspace_id: UUID, profile_id: UUID, act: Act
) -> dict[str, object]:
    """Deletes a profile: runs that began with it keep its options, a later start that names it is refused.

    Raises:
        NotFound: `config_profile.not_found`.
    """
    row = await conn.fetchrow(_DELETE, workspace_id, profile_id)
    if row is None:
        raise NotFound("no such profile", code="config_profile.not_found")
    await _say(conn, workspace_id, row, act, Action.CONFIG_PROFILE_DELETE)
    return dict(row)


async def list_profiles(conn: AsyncConnection, workspace_id: UUID, page: PageRequest) -> Page:
    """Profiles of a workspace."""
    statement = select(tool_profiles).where(tool_profiles.c.workspace_id == workspace_id)
    return await fetch_page(conn, statement, ORDERS, page)


async def with_profiles(conn: Connection, workspace_id: UUID, definition: Definition) -> Definition:
    """The definition with the options of the profiles that its steps name. No statement if none does.

    Raises:
        Invalid: `config_profile.unknown`, with every step that names one that is not there;
            `definition.too_large`.
    """
    named = {
        step.step_id: (step.tool_id, step.config_profile) for step in definition.steps if step.config_profile
    }
    if not named:
        return definition
    tools, wanted = [tool for tool, _ in named.values()], [name for _, name in named.values()]
    rows = await conn.fetch(_FIND, workspace_id, tools, wanted)
    found = {(row["tool_id"], row["name"]): row["options"] for row in rows}
    if unknown := {step_id: key for step_id, key in named.items() if key not in found}:
        faults = {
            f"jobs.{step_id}.config_profile": f"{tool} has no profile of that name"
            for step_id, (tool, _) in unknown.items()
        }
        raise Invalid("the definition names unknown profiles", code="config_profile.unknown", fields=faults)
    return definition.with_profiles(found)


async def _connector(conn: Connection, wanted: NewProfile) -> Connector | None:
    """The connector that is meant; None for a tool that comes with the product."""
    if wanted.tool_id in TOOLS:
        return None
    found = await connectors.named(conn, wanted.workspace_id, [wanted.tool_id])
    if wanted.tool_id not in found:
        raise Invalid("no such tool", code="tool.unknown", fields={"tool": "unknown"})
    return found[wanted.tool_id]


def _check(wanted: NewProfile, connector: Connector | None) -> None:
    faults = option_faults(wanted.tool_id, wanted.options, connector)
    if faults and all(fault is CREDENTIAL_FAULT for fault in faults.values()):
        raise Invalid(CREDENTIAL_FAULT, code="definition.inline_secret", fields=faults)
    if faults:
        raise Invalid("the options do not fit the tool", code="config_profile.invalid", fields=faults)
    if len(orjson.dumps(wanted.options)) > MAX_BYTES:
        detail = f"the options of a profile have at most {MAX_BYTES} bytes"
        raise Invalid(detail, code="config_profile.too_large", fields={"options": detail})


async def _say(conn: Connection, workspace_id: UUID, row: Record, act: Act, action: Action) -> None:
    value = f"{row['tool_id']}: {row['name']}"
    await tell(conn, act, RuleDeed(action, workspace_id, names.config_profile_subject(row["id"]), value))
