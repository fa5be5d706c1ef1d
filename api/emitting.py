"""Events that mirror a request: declared beside the route, written in its transaction.

    @router.post("")
    @emits(EVENT_CATALOG.asset_group.created, Mirror(names.group_subject, metadata=answered("name")))
    async def create(access: WriteTargets, body: NewGroup) -> GroupDetail:

The route runs as it would; what it was given and what it answers are then read by the extractors. The event
belongs to the operation: if it cannot be written, the request fails and nothing is changed.
Source: Event bridge, Publishing.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Final, ParamSpec, TypeAlias, TypeVar
from uuid import UUID

from pydantic import BaseModel, JsonValue

from api.deps import Access
from runlane.db import outbox
from runlane.db.engine import driver
from runlane.errors import Defect
from runlane.events import Leaf, envelope, scrub_text
from runlane.events.trail_payloads import RequestPayload

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT", bound=BaseModel)
RequestT = TypeVar("RequestT", bound=RequestPayload)

MAX_LISTED: Final = 20
"""Entries of a list that an event repeats; of a longer one it says how many there are."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was carried out: what its route was given, by name, and what it answers."""

    given: Mapping[str, object]
    answer: BaseModel

    @property
    def access(self) -> Access:
        """Who asked, in the open transaction.

        Raises:
            Defect: `access` is something else.
        """
        access = self.given["access"]
        if not isinstance(access, Access):
            raise Defect(f"an Access is needed, not {type(access).__name__}")
        return access

    @property
    def body(self) -> Mapping[str, JsonValue]:
        """What the caller said, without what it left out."""
        body = self.given.get("body")
        return body.model_dump(mode="json", exclude_unset=True) if isinstance(body, BaseModel) else {}


Extract: TypeAlias = Callable[[Call], Mapping[str, JsonValue]]


def asked(call: Call) -> Mapping[str, JsonValue]:
    """Everything that the caller said, but the reason."""
    return {name: value for name, value in call.body.items() if name != "reason"}


def nothing(_call: Call) -> Mapping[str, JsonValue]:
    """No more than is there anyway."""
    return {}


def answered(*fields: str) -> Extract:
    """These fields of the answer."""
    return lambda call: call.answer.model_dump(mode="json", include=set(fields))


def always(_call: Call) -> bool:
    """Each request that was carried out is told of."""
    return True


def has_changed(call: Call) -> bool:
    """Whether the answer says that anything was changed."""
    return bool(call.answer.model_dump(include={"changed"}).get("changed"))


@dataclass(frozen=True, slots=True)
class Mirror:
    """How an event is read off a request.

    `subject` makes the subject of the id in the answer; `is_due`: whether there is anything to tell.
    """

    subject: Callable[[UUID], str]
    changes: Extract = asked
    metadata: Extract = nothing
    is_due: Callable[[Call], bool] = always


def emits(
    leaf: Leaf[RequestT], mirror: Mirror
) -> Callable[[Callable[P, Awaitable[AnswerT]]], Callable[P, Awaitable[AnswerT]]]:
    """Has a route publish a leaf. Its answer has an `id` and a `version`, which grows with each change.

    Raises:
        Defect: at import, of a route without `access`, or with another answer.
    """

    def declare(route: Callable[P, Awaitable[AnswerT]]) -> Callable[P, Awaitable[AnswerT]]:
        _require_readable(route)

        @wraps(route)
        async def emitting(*args: P.args, **kwargs: P.kwargs) -> AnswerT:
            answer = await route(*args, **kwargs)
            call = Call(kwargs, answer)
            if mirror.is_due(call):
                await _publish(leaf, mirror, call)
            return answer

        return emitting

    return declare


def _require_readable(route: Callable[..., object]) -> None:
    signature = inspect.signature(route)
    answer = signature.return_annotation
    fields = answer.model_fields if isinstance(answer, type) and issubclass(answer, BaseModel) else {}
    if "access" not in signature.parameters or not {"id", "version"} <= fields.keys():
        raise Defect(f"{route.__qualname__} has no `access`, or no `id` and `version` in its answer")


async def _publish(leaf: Leaf[RequestT], mirror: Mirror, call: Call) -> None:
    access, answer = call.access, call.answer.model_dump(include={"id", "version"})
    reason = call.body.get("reason")
    payload = leaf.payload(
        resource_id=answer["id"],
        reason=scrub_text(reason) if isinstance(reason, str) else None,
        changes={name: _short(value) for name, value in mirror.changes(call).items()},
        metadata={name: _short(value) for name, value in mirror.metadata(call).items()},
    )
    event = envelope(
        leaf,
        payload,
        workspace_id=access.workspace_id,
        subject=mirror.subject(answer["id"]),
        ordinal=str(answer["version"]),
        actor=access.actor,
    )
    await outbox.insert(driver(access.conn), [event])


def _short(value: JsonValue) -> JsonValue:
    return {"count": len(value)} if isinstance(value, list) and len(value) > MAX_LISTED else value
