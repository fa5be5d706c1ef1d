"""Issues in Linear. Source: Linear, GraphQL API.

Linear takes ids from its callers, so a ticket's id is made of the finding, and a comment's of the event:
neither can be there twice.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final, Generic, TypeVar
from uuid import UUID

from httpx2 import AsyncClient
from pydantic import BaseModel, Field, JsonValue, ValidationError

from runlane.outbound.config import BaseUrl, Credential, Form
from runlane.outbound.exchange import Answer
from runlane.outbound.reach import Reach
from runlane.outbound.tickets import Answered, Desk, Finding, ModelT, Ticket, TicketTransport, fenced, read
from runlane.outbound.transport import Rejected, Sent

API_URL: Final = "https://api.linear.app/graphql"
CLOSED_STATES: Final = ("completed", "canceled")
"""Types of the states in which an issue is closed."""

_STATUS: Final = {
    "RATELIMITED": 429,
    "AUTHENTICATION_ERROR": 401,
    "FORBIDDEN": 403,
    "INTERNAL_SERVER_ERROR": 500,
}
"""What HTTP would have said: Linear tells most errors in an answer of 200 or 400."""

_OTHER_ERROR: Final = 400

_FIND: Final = """
query($id: ID!) { issues(filter: {id: {eq: $id}}, includeArchived: true) { nodes { id url state { type } } } }
"""
_OPEN: Final = """
mutation($input: IssueCreateInput!) { issueCreate(input: $input) { issue { id url state { type } } } }
"""
_COMMENTS: Final = "query($id: ID!) { comments(filter: {id: {eq: $id}}) { nodes { id } } }"
_COMMENT: Final = "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success } }"
_STATES: Final = """
query($team: ID!, $type: String!) {
  workflowStates(filter: {team: {id: {eq: $team}}, type: {eq: $type}}) { nodes { id } }
}
"""
_MOVE: Final = """
mutation($id: String!, $state: String!) { issueUpdate(id: $id, input: {stateId: $state}) { success } }
"""


class LinearConfig(Form):
    """The team that issues are made for."""

    team_id: UUID
    api_url: BaseUrl = API_URL


class LinearSecrets(Form):
    """An API key."""

    token: Credential


NodeT = TypeVar("NodeT", bound=BaseModel)


class _Nodes(BaseModel, Generic[NodeT]):
    nodes: list[NodeT]


class _State(BaseModel):
    type: str


class _Issue(BaseModel):
    id: str
    url: str
    state: _State


class _Id(BaseModel):
    id: str


class _Found(BaseModel):
    issues: _Nodes[_Issue]


class _IssueOf(BaseModel):
    issue: _Issue


class _Made(BaseModel):
    made: _IssueOf = Field(alias="issueCreate")


class _Comments(BaseModel):
    comments: _Nodes[_Id]


class _States(BaseModel):
    states: _Nodes[_Id] = Field(alias="workflowStates")


class _Nothing(BaseModel):
    pass


class _Extensions(BaseModel):
    code: str = ""


class _Error(BaseModel):
    extensions: _Extensions = _Extensions()


class _Reply(BaseModel):
    data: dict[str, JsonValue]


class _Errors(BaseModel):
    errors: list[_Error] = []


def linear_transport(reach: Reach) -> TicketTransport[LinearConfig, LinearSecrets]:
    """Transport of kind `linear`."""
    return TicketTransport(reach, LinearConfig, LinearSecrets, LinearTracker)


class LinearTracker:
    """`Tracker` of Linear."""

    def __init__(
        self, client: AsyncClient, at: datetime, config: LinearConfig, secrets: LinearSecrets
    ) -> None:
        self._desk = Desk(client, at, {"Authorization": secrets.token}, (secrets.token,), _sent)
        self._at = at
        self._config = config

    async def find(self, finding: Finding) -> Ticket | None:
        """As `Tracker.find`."""
        found = await self._ask(_FIND, {"id": self._id(finding.mark)}, _Found)
        return _ticket(found.issues.nodes[0]) if found.issues.nodes else None

    async def open(self, finding: Finding) -> Ticket:
        """As `Tracker.open`."""
        issue = {
            "id": self._id(finding.mark),
            "teamId": str(self._config.team_id),
            "title": finding.title,
            "description": fenced(finding.lines()),
        }
        return _ticket((await self._ask(_OPEN, {"input": issue}, _Made)).made.issue)

    async def has_comment(self, ticket: Ticket, finding: Finding) -> bool:
        """As `Tracker.has_comment`."""
        asked = {"id": self._id(finding.event_mark)}
        return bool((await self._ask(_COMMENTS, asked, _Comments)).comments.nodes)

    async def comment(self, ticket: Ticket, finding: Finding) -> None:
        """As `Tracker.comment`."""
        body = f"{finding.notice.title}\n\n{fenced(finding.lines())}"
        comment = {"id": self._id(finding.event_mark), "issueId": ticket.key, "body": body}
        await self._ask(_COMMENT, {"input": comment}, _Nothing)

    async def reopen(self, ticket: Ticket) -> None:
        """As `Tracker.reopen`."""
        await self._move(ticket, "unstarted")

    async def close(self, ticket: Ticket) -> None:
        """As `Tracker.close`."""
        await self._move(ticket, "completed")

    async def _move(self, ticket: Ticket, state_type: str) -> None:
        asked = {"team": str(self._config.team_id), "type": state_type}
        states = (await self._ask(_STATES, asked, _States)).states.nodes
        if not states:
            raise Rejected(f"the team has no state of type {state_type}")
        await self._ask(_MOVE, {"id": ticket.key, "state": states[0].id}, _Nothing)

    async def _ask(self, query: str, variables: Mapping[str, object], model: type[ModelT]) -> ModelT:
        answer = await self._desk.tell(
            "POST", self._config.api_url, {"query": query.strip(), "variables": variables}
        )
        if _errors(answer):
            raise Answered(_sent(answer, self._at))
        return read(model, read(_Reply, answer.body).data)

    def _id(self, mark: str) -> str:
        """An id in the one form that Linear takes; teams are apart, since ids are Linear's as a whole."""
        digest = sha256(f"{self._config.team_id}/{mark}".encode()).digest()
        return str(UUID(bytes=digest[:16], version=4))


def _ticket(issue: _Issue) -> Ticket:
    return Ticket(issue.id, issue.url, issue.state.type not in CLOSED_STATES)


def _errors(answer: Answer) -> list[_Error]:
    try:
        return _Errors.model_validate_json(answer.body).errors
    except ValidationError:
        return []


def _sent(answer: Answer, at: datetime) -> Sent:
    codes = [error.extensions.code for error in _errors(answer)]
    if not codes:
        return answer.sent(at)
    told = next((_STATUS[code] for code in codes if code in _STATUS), None)
    return answer.sent(at, status=told or (_OTHER_ERROR if answer.is_success else answer.status))
