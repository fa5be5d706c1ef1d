"""Issues on GitHub. Source: GitHub, REST API, Issues (version 2022-11-28).

A label holds the finding's mark: lists by label are complete at once, the search is not.
"""

from datetime import datetime
from typing import Annotated, Final, Literal
from urllib.parse import quote

from httpx2 import AsyncClient
from pydantic import BaseModel, Field, RootModel, StringConstraints

from runlane.outbound.config import BaseUrl, Credential, Form
from runlane.outbound.exchange import MAX_RETRY_AFTER_S, Answer
from runlane.outbound.reach import Reach
from runlane.outbound.tickets import Desk, Finding, Ticket, TicketTransport, fenced
from runlane.outbound.transport import Rejected, Sent

API_URL: Final = "https://api.github.com"

_Label = Annotated[str, StringConstraints(min_length=1, max_length=50)]
_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429


class GithubConfig(Form):
    """The repository as `owner/name`, and labels that each issue gets."""

    repository: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    ]
    labels: Annotated[tuple[_Label, ...], Field(max_length=20)] = ()
    api_url: BaseUrl = API_URL


class GithubSecrets(Form):
    """A token that may write issues of the repository."""

    token: Credential


class _LabelName(BaseModel):
    name: str


class _Issue(BaseModel):
    number: int
    html_url: str
    state: Literal["open", "closed"]
    labels: list[_LabelName] = []


class _Issues(RootModel[list[_Issue]]):
    pass


class _Comment(BaseModel):
    body: str | None = None


class _Comments(RootModel[list[_Comment]]):
    pass


def github_transport(reach: Reach) -> TicketTransport[GithubConfig, GithubSecrets]:
    """Transport of kind `github`."""
    return TicketTransport(reach, GithubConfig, GithubSecrets, GithubTracker)


class GithubTracker:
    """`Tracker` of GitHub."""

    def __init__(
        self, client: AsyncClient, at: datetime, config: GithubConfig, secrets: GithubSecrets
    ) -> None:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {secrets.token}",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        self._desk = Desk(client, at, headers, (secrets.token,), _sent)
        self._labels = config.labels
        self._issues = f"{config.api_url}/repos/{config.repository}/issues"

    async def find(self, finding: Finding) -> Ticket | None:
        """As `Tracker.find`."""
        url = f"{self._issues}?labels={finding.mark}&state=all&per_page=1&sort=created&direction=asc"
        found = await self._desk.ask("GET", url, None, _Issues)
        return _ticket(found.root[0]) if found.root else None

    async def open(self, finding: Finding) -> Ticket:
        """As `Tracker.open`.

        Raises:
            Rejected: the issue was made without its label, as happens to a token that may set none; the next
                event would not find it.
        """
        made = await self._desk.ask(
            "POST",
            self._issues,
            {
                "title": finding.title,
                "body": fenced(finding.lines()),
                "labels": [finding.mark, *self._labels],
            },
            _Issue,
        )
        if finding.mark not in {label.name for label in made.labels}:
            raise Rejected("the issue was made, but its token may set no labels, by which it is found again")
        return _ticket(made)

    async def has_comment(self, ticket: Ticket, finding: Finding) -> bool:
        """As `Tracker.has_comment`; the first hundred since the event are looked through."""
        since = quote(finding.since, safe="")
        url = f"{self._issues}/{ticket.key}/comments?since={since}&per_page=100"
        comments = await self._desk.ask("GET", url, None, _Comments)
        return any(finding.event_mark in (each.body or "") for each in comments.root)

    async def comment(self, ticket: Ticket, finding: Finding) -> None:
        """As `Tracker.comment`."""
        body = f"{finding.notice.title}\n\n{fenced(finding.lines())}"
        await self._desk.tell("POST", f"{self._issues}/{ticket.key}/comments", {"body": body})

    async def reopen(self, ticket: Ticket) -> None:
        """As `Tracker.reopen`."""
        await self._desk.tell("PATCH", f"{self._issues}/{ticket.key}", {"state": "open"})

    async def close(self, ticket: Ticket) -> None:
        """As `Tracker.close`."""
        state = {"state": "closed", "state_reason": "completed"}
        await self._desk.tell("PATCH", f"{self._issues}/{ticket.key}", state)


def _ticket(issue: _Issue) -> Ticket:
    return Ticket(str(issue.number), issue.html_url, issue.state == "open")


def _sent(answer: Answer, at: datetime) -> Sent:
    """A limit of GitHub's is told as 403; when it ends stands in a header of its own."""
    is_spent = answer.headers.get("x-ratelimit-remaining") == "0"
    if answer.status != _FORBIDDEN or not (is_spent or "retry-after" in answer.headers):
        return answer.sent(at)
    sent = answer.sent(at, status=_TOO_MANY)
    reset = answer.headers.get("x-ratelimit-reset", "")
    if sent.retry_after_s is not None or not (reset.isascii() and reset.isdigit() and len(reset) <= 12):
        return sent
    wait_s = min(max(float(reset) - at.timestamp(), 0.0), MAX_RETRY_AFTER_S)
    return Sent(sent.status, wait_s, sent.excerpt)
