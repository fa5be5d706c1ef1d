"""Notifications of the caller, and the rules of the workspace that say who is told what."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, cast
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query

from api.action_schemas import Why
from api.deps import Access, ReadNotifications, WriteNotifications, no_query
from api.notification_schemas import (
    InboxQuery,
    Marked,
    Marking,
    MuteAnswer,
    Mutes,
    NewMute,
    NewRule,
    Notification,
    Rule,
    Rules,
    Unread,
)
from api.problems import problems
from api.schemas import PageOf
from runlane import notifications as rules_of
from runlane.db import inboxes, notification_rules
from runlane.db.engine import driver
from runlane.errors import Conflict, NotFound

router = APIRouter(prefix="/notifications", tags=["notifications"])

Inbox = Annotated[InboxQuery, Query()]
RuleId = Annotated[UUID, Path(description="id of a rule")]
MuteId = Annotated[UUID, Path(description="id of a mute")]


@router.get("")
async def index(access: ReadNotifications, query: Inbox) -> PageOf[Notification]:
    """Lists the caller's notifications, the newest first; by `-updated_at`, a digest moves as it grows."""
    whose = (access.workspace_id, access.principal.name)
    page = await inboxes.list_inbox(access.conn, *whose, query.page, only_unread=query.unread)
    return PageOf[Notification](items=[_shown(row) for row in page.items], next=page.next)


@router.get("/count", dependencies=[Depends(no_query)])
async def count(access: ReadNotifications) -> Unread:
    """Says how many of the caller's notifications are unread."""
    unread = await inboxes.count_unread(driver(access.conn), access.workspace_id, access.principal.name)
    return Unread(unread=unread)


@router.post("/read", dependencies=[Depends(no_query)])
async def read(access: ReadNotifications, body: Marking) -> Marked:
    """Marks notifications of the caller as read. Repeated, it changes nothing."""
    return await _mark(access, body, is_read=True)


@router.post("/unread", dependencies=[Depends(no_query)])
async def unread(access: ReadNotifications, body: Marking) -> Marked:
    """Marks notifications of the caller as unread. Repeated, it changes nothing."""
    return await _mark(access, body, is_read=False)


@router.get("/rules", dependencies=[Depends(no_query)])
async def list_rules(access: ReadNotifications) -> Rules:
    """Lists the rules of the workspace."""
    found = await notification_rules.list_rules(driver(access.conn), access.workspace_id)
    return Rules.model_validate({"items": found})


@router.put("/rules", dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict))
async def save_rule(access: WriteNotifications, body: NewRule) -> Rule:
    """Makes a rule, or replaces the one of that name."""
    wanted = notification_rules.NewRule(
        access.workspace_id, body.name, body.types, body.severity, body.target_id, body.group,
        body.recipients, body.enabled,
    )  # fmt: skip
    row = await notification_rules.save_rule(driver(access.conn), wanted, access.act(body.reason))
    return Rule.model_validate(row)


@router.post("/rules/{rule_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def remove_rule(access: WriteNotifications, rule_id: RuleId, body: Why | None = None) -> Rule:
    """Removes a rule; without one called `default`, the workspace has the default rule again."""
    act = access.act(body.reason if body else None)
    row = await notification_rules.remove_rule(driver(access.conn), access.workspace_id, rule_id, act)
    return Rule.model_validate(row)


@router.get("/mutes", dependencies=[Depends(no_query)])
async def list_mutes(access: ReadNotifications) -> Mutes:
    """Lists what is muted now."""
    found = await notification_rules.list_mutes(driver(access.conn), access.workspace_id)
    return Mutes.model_validate({"items": found})


@router.post(
    "/mutes", status_code=201, dependencies=[Depends(no_query)], responses=problems(NotFound, Conflict)
)
async def mute(access: WriteNotifications, body: NewMute) -> MuteAnswer:
    """Mutes a rule, a type of events or a target for everybody in the workspace, for a while."""
    about = rules_of.Mute(body.rule, body.type, body.target_id)
    wanted = notification_rules.NewMute(access.workspace_id, about, timedelta(seconds=body.for_s))
    row = await notification_rules.mute(driver(access.conn), wanted, access.act(body.reason))
    return MuteAnswer.model_validate(row)


@router.post("/mutes/{mute_id}/remove", dependencies=[Depends(no_query)], responses=problems(NotFound))
async def unmute(access: WriteNotifications, mute_id: MuteId, body: Why | None = None) -> MuteAnswer:
    """Ends a mute before its time."""
    act = access.act(body.reason if body else None)
    row = await notification_rules.unmute(driver(access.conn), access.workspace_id, mute_id, act)
    return MuteAnswer.model_validate(row)


async def _mark(access: Access, body: Marking, *, is_read: bool) -> Marked:
    whose = (access.workspace_id, access.principal.name)
    changed = await inboxes.mark(driver(access.conn), whose, body.ids, body.up_to, is_read=is_read)
    return Marked(changed=changed)


def _shown(row: Mapping[str, object]) -> Notification:
    data = cast("Mapping[str, object]", row["data"])  # jsonb of a payload
    text = rules_of.sentence(str(row["type"]), int(str(row["events"])), data)
    return Notification.model_validate({**row, "text": text})
