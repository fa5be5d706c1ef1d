"""Issues in Jira. Source: Atlassian, Jira Cloud platform REST API v3; Atlassian Document Format.

A label holds the finding's mark. Jira's search lags behind by seconds; the next attempt is five seconds later
at the earliest.
"""

import base64
from datetime import datetime
from typing import Annotated, Final

from httpx2 import AsyncClient
from pydantic import BaseModel, Field, StringConstraints

from runlane.outbound.config import BaseUrl, Credential, Form
from runlane.outbound.reach import Reach
from runlane.outbound.tickets import Desk, Finding, Ticket, TicketTransport
from runlane.outbound.transport import Rejected

DONE_CATEGORY: Final = "done"
"""Category of the states in which an issue is closed; each state of a project is in one."""

_Label = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,255}$")]


class JiraConfig(Form):
    """The site, who the token belongs to, and what issues are made as."""

    url: BaseUrl
    email: Annotated[str, StringConstraints(pattern=r"^[!-9;-~]+@[!-9;-~]+$", max_length=254)]
    project: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{1,20}$")]
    issue_type: Annotated[str, StringConstraints(min_length=1, max_length=60)] = "Bug"
    labels: Annotated[tuple[_Label, ...], Field(max_length=20)] = ()


class JiraSecrets(Form):
    """An API token."""

    token: Credential


class _Category(BaseModel):
    key: str


class _Status(BaseModel):
    category: _Category = Field(alias="statusCategory")


class _Fields(BaseModel):
    status: _Status


class _Issue(BaseModel):
    key: str
    fields: _Fields


class _Found(BaseModel):
    issues: list[_Issue]


class _Made(BaseModel):
    key: str


class _Transition(BaseModel):
    id: str
    to: _Status


class _Transitions(BaseModel):
    transitions: list[_Transition]


def jira_transport(reach: Reach) -> TicketTransport[JiraConfig, JiraSecrets]:
    """Transport of kind `jira`."""
    return TicketTransport(reach, JiraConfig, JiraSecrets, JiraTracker)


class JiraTracker:
    """`Tracker` of Jira."""

    def __init__(self, client: AsyncClient, at: datetime, config: JiraConfig, secrets: JiraSecrets) -> None:
        basic = base64.b64encode(f"{config.email}:{secrets.token}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
        self._desk = Desk(client, at, headers, (secrets.token, basic))
        self._config = config
        self._api = f"{config.url}/rest/api/3"

    async def find(self, finding: Finding) -> Ticket | None:
        """As `Tracker.find`."""
        query = f'project = "{self._config.project}" AND labels = "{finding.mark}" ORDER BY created ASC'
        asked = {"jql": query, "maxResults": 1, "fields": ["status"]}
        found = await self._desk.ask("POST", f"{self._api}/search/jql", asked, _Found)
        if not found.issues:
            return None
        issue = found.issues[0]
        return self._ticket(issue.key, is_open=not _is_done(issue.fields.status))

    async def open(self, finding: Finding) -> Ticket:
        """As `Tracker.open`."""
        fields = {
            "project": {"key": self._config.project},
            "issuetype": {"name": self._config.issue_type},
            "summary": finding.title,
            "description": document(finding.lines()),
            "labels": [finding.mark, *self._config.labels],
        }
        made = await self._desk.ask("POST", f"{self._api}/issue", {"fields": fields}, _Made)
        return self._ticket(made.key, is_open=True)

    async def has_comment(self, ticket: Ticket, finding: Finding) -> bool:
        """As `Tracker.has_comment`; the last hundred are looked through."""
        url = f"{self._api}/issue/{ticket.key}/comment?orderBy=-created&maxResults=100"
        answer = await self._desk.tell("GET", url)
        return finding.event_mark.encode() in answer.body

    async def comment(self, ticket: Ticket, finding: Finding) -> None:
        """As `Tracker.comment`."""
        body = {"body": document(finding.lines(), finding.notice.title)}
        await self._desk.tell("POST", f"{self._api}/issue/{ticket.key}/comment", body)

    async def reopen(self, ticket: Ticket) -> None:
        """As `Tracker.reopen`."""
        await self._move(ticket, is_done=False)

    async def close(self, ticket: Ticket) -> None:
        """As `Tracker.close`."""
        await self._move(ticket, is_done=True)

    async def _move(self, ticket: Ticket, *, is_done: bool) -> None:
        url = f"{self._api}/issue/{ticket.key}/transitions"
        offered = await self._desk.ask("GET", url, None, _Transitions)
        for transition in offered.transitions:
            if _is_done(transition.to) == is_done:
                await self._desk.tell("POST", url, {"transition": {"id": transition.id}})
                return
        wanted = "closed" if is_done else "open"
        raise Rejected(f"the workflow of {ticket.key} has no way to a state that is {wanted}")

    def _ticket(self, key: str, *, is_open: bool) -> Ticket:
        return Ticket(key, f"{self._config.url}/browse/{key}", is_open)


def document(lines: list[str], heading: str = "") -> dict[str, object]:
    """Lines as a block of code in Atlassian's format: texts are nodes, so nothing in them is markup."""
    code = {"type": "codeBlock", "content": [{"type": "text", "text": "\n".join(lines)}]}
    said = [{"type": "paragraph", "content": [{"type": "text", "text": heading}]}] if heading else []
    return {"type": "doc", "version": 1, "content": [*said, code]}


def _is_done(status: _Status) -> bool:
    return status.category.key == DONE_CATEGORY
