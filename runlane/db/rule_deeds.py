"""What was done to a rule, a profile or a secret, said in each workspace that it concerns."""

from dataclasses import dataclass
from uuid import UUID

from runlane.db import outbox
from runlane.db.acts import Act, Action, Deed, acted
from runlane.db.pool import Connection
from runlane.db.workspaces import concerned_by


@dataclass(frozen=True, slots=True)
class RuleDeed:
    """A deed about what a workspace has, or the platform (None)."""

    action: Action
    workspace_id: UUID | None
    subject: str
    value: str


async def tell(conn: Connection, act: Act, deed: RuleDeed) -> None:
    """Writes the events of a deed, one in each workspace. A second call is another deed."""
    moment = await conn.fetchval("SELECT uuidv7()")
    workspaces = await concerned_by(conn, deed.workspace_id)
    deeds = [
        Deed(deed.action, each, deed.subject, ordinal=f"{each}/{moment}", value=deed.value)
        for each in workspaces
    ]
    await outbox.insert(conn, [acted(act, each) for each in deeds])
