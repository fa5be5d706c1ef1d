"""Tickets: one flow for three trackers, right after any lost answer."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
import pytest
from httpx2 import AsyncClient

from runlane.errors import Invalid
from runlane.integrations import TEST, Kind
from runlane.outbound.reach import Reach
from runlane.outbound.tickets import DETECTED, REOPENED, RESOLVED, fenced
from runlane.outbound.transport import Endpoint, Message, Rejected, Sent, Unreachable
from runlane.outbound.transports import transports
from tests.receivers import LOOPBACK, Received, Reply, receiver, reply, sender
from tests.trackers import TEAM, Github, Jira, Linear, Tracker

FINDING = UUID("0192d3a0-0000-7000-8000-00000000000f")
AT = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
HOSTILE = "https://a.test/`````@admin](x) <img src=x> #1 [~admin] h1. {code}"
PAYLOAD = {"vulnerability_id": str(FINDING), "check_id": "tls.expired", "severity": "high", "url": HOSTILE}

CONFIGS: Mapping[Kind, Mapping[str, object]] = {
    Kind.GITHUB: {"repository": "acme/app", "labels": ["security"]},
    Kind.JIRA: {"email": "me@acme.test", "project": "SEC"},
    Kind.LINEAR: {"team_id": TEAM},
}
TRACKERS: Mapping[Kind, type[Tracker]] = {Kind.GITHUB: Github, Kind.JIRA: Jira, Kind.LINEAR: Linear}
KINDS = sorted(CONFIGS)


def message(event_type: str, number: int = 0, finding: UUID = FINDING) -> Message:
    body = {
        "occurredAt": "2026-12-01T08:00:00.000000Z",
        "outcome": "success",
        "resourceType": "vulnerability",
        "resourceId": str(finding),
        "payload": PAYLOAD,
    }
    return Message(uuid5(NAMESPACE_URL, f"{event_type}/{number}"), event_type, body)


@dataclass
class Desk:
    kind: Kind
    tracker: Tracker
    url: str
    client: AsyncClient

    def endpoint(self) -> Endpoint:
        config = dict(CONFIGS[self.kind])
        config["url" if self.kind is Kind.JIRA else "api_url"] = self.url
        return Endpoint(self.kind, config, {"token": f"token-of-{self.kind}"})

    async def tell(self, event_type: str, number: int = 0) -> Sent:
        transport = transports(LOOPBACK)[self.kind]
        return await transport.send(self.client, self.endpoint(), message(event_type, number), AT)


@asynccontextmanager
async def desk(kind: Kind) -> AsyncIterator[Desk]:
    tracker = TRACKERS[kind]()
    async with receiver(tracker.answer) as served, sender() as (client, _):
        yield Desk(kind, tracker, served.url + ("/graphql" if kind is Kind.LINEAR else ""), client)


async def told(kind: Kind, answer: Reply) -> Sent:
    """What comes of an event when each call is answered so."""
    async with receiver(lambda _: answer) as served, sender() as (client, _):
        return await Desk(kind, Tracker(), served.url, client).tell(DETECTED)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_finding_has_one_ticket_that_follows_it(kind: Kind) -> None:
    async with desk(kind) as there:
        made = await there.tell(DETECTED)
        for event_type in (DETECTED, RESOLVED, RESOLVED, REOPENED, REOPENED):
            await there.tell(event_type)
        [ticket] = there.tracker.issues

        assert there.tracker.changes == ["create", "closed", "comment", "open"]
        assert ticket.is_open
        assert made.status == 200
        assert made.ticket_ref
        assert (await there.tell(REOPENED, 2)).ticket_ref == made.ticket_ref
        assert len(ticket.comments) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", ["create", "comment", "open", "closed"])
async def test_a_lost_answer_makes_nothing_twice(kind: Kind, lost: str) -> None:
    async with desk(kind) as there:
        there.tracker.lost_after = lost
        statuses = [
            (await there.tell(event_type)).status
            for event_type in (DETECTED, DETECTED, RESOLVED, RESOLVED, REOPENED, REOPENED, REOPENED)
        ]

        assert sorted(statuses) == [200] * 6 + [502]
        assert there.tracker.changes == ["create", "closed", "comment", "open"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_never_told_is_made_up_for(kind: Kind) -> None:
    async with desk(kind) as there:
        nothing = await there.tell(RESOLVED)
        await there.tell(REOPENED)

        assert nothing.ticket_ref is None
        assert there.tracker.changes == ["create"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_test_proves_the_credential_and_makes_nothing(kind: Kind) -> None:
    async with desk(kind) as there:
        assert (await there.tell(TEST)).status == 200
        assert (await there.tell("vulnerability.analysis.completed")).status == 200
        assert not there.tracker.changes


@pytest.mark.parametrize("kind", KINDS)
async def test_a_digest_is_no_ticket(kind: Kind) -> None:
    digest = Message(FINDING, DETECTED, message(DETECTED).body, digest_count=21)

    async with desk(kind) as there:
        with pytest.raises(Rejected):
            await transports(LOOPBACK)[kind].send(there.client, there.endpoint(), digest, AT)


async def test_an_issue_of_github_is_found_by_its_label_and_says_what_is_in_it_as_code() -> None:
    async with desk(Kind.GITHUB) as there:
        sent = await there.tell(DETECTED)

    asked = there.tracker.issues[0].fields
    assert sent.ticket_ref == "https://github.test/acme/app/issues/1"
    assert asked["labels"] == [f"runlane-{FINDING}", "security"]
    assert asked["title"].startswith("[high] tls.expired https://a.test/")
    first, *_, last = asked["body"].splitlines()
    assert (first, last) == ("``````text", "``````")


async def test_an_issue_of_jira_is_a_document_of_text_nodes() -> None:
    async with desk(Kind.JIRA) as there:
        sent = await there.tell(DETECTED)
        url = there.url

    asked = there.tracker.issues[0].fields
    assert sent.ticket_ref == f"{url}/browse/SEC-1"
    assert asked["issuetype"] == {"name": "Bug"}
    assert asked["project"] == {"key": "SEC"}
    assert (asked["description"]["type"], asked["description"]["version"]) == ("doc", 1)
    [block] = asked["description"]["content"]
    assert block["type"] == "codeBlock"
    assert HOSTILE in block["content"][0]["text"]


async def test_ids_in_linear_are_made_of_the_finding() -> None:
    async with desk(Kind.LINEAR) as one, desk(Kind.LINEAR) as other:
        await one.tell(DETECTED)
        await other.tell(DETECTED)

    keys = {each.tracker.issues[0].key for each in (one, other)}
    assert len(keys) == 1
    assert UUID(keys.pop()).version == 4


async def test_an_issue_without_its_label_is_a_fault_that_is_told() -> None:
    async with desk(Kind.GITHUB) as there:
        assert isinstance(there.tracker, Github)
        there.tracker.may_label = False
        with pytest.raises(Rejected, match="labels"):
            await there.tell(DETECTED)


@pytest.mark.parametrize(
    ("kind", "answer", "status", "wait_s"),
    [
        (
            Kind.GITHUB,
            reply({}, 403, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(AT.timestamp()) + 60)),
            429,
            60.0,
        ),
        (Kind.GITHUB, reply({}, 403, Retry_After="5"), 429, 5.0),
        (Kind.GITHUB, reply({}, 403), 403, None),
        (Kind.GITHUB, reply({}, 301, Location="https://elsewhere.test/"), 301, None),
        (Kind.JIRA, reply({}, 429, Retry_After="3"), 429, 3.0),
        (Kind.JIRA, reply({"errorMessages": ["token-of-jira"]}, 401), 401, None),
        (Kind.LINEAR, reply({"errors": [{"extensions": {"code": "RATELIMITED"}}]}, 400), 429, None),
        (Kind.LINEAR, reply({"errors": [{"extensions": {"code": "AUTHENTICATION_ERROR"}}]}), 401, None),
        (Kind.LINEAR, reply({"errors": [{"message": "no such field"}], "data": None}), 400, None),
    ],
)
async def test_an_answer_that_ends_the_attempt_is_told(
    kind: Kind, answer: Reply, status: int, wait_s: float | None
) -> None:
    sent = await told(kind, answer)

    assert (sent.status, sent.retry_after_s) == (status, wait_s)
    assert "token-of" not in f"{sent}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"data": 1}', b"{" * 10_000])
async def test_an_answer_of_something_else_is_no_answer(kind: Kind, body: bytes) -> None:
    with pytest.raises(Unreachable, match="not the one of this tracker"):
        await told(kind, Reply(200, body))


@pytest.mark.parametrize(
    ("kind", "config", "places"),
    [
        (
            Kind.GITHUB,
            {"repository": "acme/../app", "labels": [""], "api_url": "https://[::1]"},
            {"config.repository", "config.labels.0", "config.api_url", "secrets.token"},
        ),
        (
            Kind.JIRA,
            {"url": "https://10.0.0.1", "email": "a", "project": 'A" OR 1=1', "issue_type": ""},
            {"config.url", "config.email", "config.project", "config.issue_type", "secrets.token"},
        ),
        (Kind.LINEAR, {"team_id": "x", "more": 1}, {"config.team_id", "config.more", "secrets.token"}),
    ],
)
def test_all_faults_of_a_configuration_are_told_at_once(
    kind: Kind, config: Mapping[str, object], places: set[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        transports(Reach())[kind].validate(config, {"token": "hunter2\r\nX-Planted: 1"})

    assert refused.value.fields.keys() == places
    assert "hunter2" not in f"{refused.value!r} {refused.value.fields}"


@pytest.mark.parametrize("kind", sorted(Kind))
def test_every_kind_has_a_transport(kind: Kind) -> None:
    with pytest.raises(Invalid):
        transports(Reach())[kind].validate({"none": "of these"}, None)


def test_code_ends_where_we_end_it() -> None:
    block = fenced(["```", "a ````` b"]).splitlines()

    assert block[0] == "``````text"
    assert block[-1] == "``````"


async def test_the_mark_of_a_foreign_event_cannot_leave_its_place_in_a_query() -> None:
    body: dict[str, Any] = {**message(DETECTED).body, "resourceId": 'x" OR project = "HR'}
    seen: list[Received] = []

    def answer(request: Received) -> Reply:
        seen.append(request)
        return Reply(500)

    async with receiver(answer) as served, sender() as (client, _):
        for kind in (Kind.JIRA, Kind.GITHUB):
            endpoint = Desk(kind, Tracker(), served.url, client).endpoint()
            await transports(LOOPBACK)[kind].send(client, endpoint, Message(FINDING, DETECTED, body), AT)

    jira, github = seen
    assert orjson.loads(jira.body)["jql"].count('"') == 4
    assert github.target.count("&") == 4
