"""Trackers of tests: as much of GitHub, Jira and Linear as tickets need, each behind a real socket."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.receivers import Received, Reply, reply

TEAM = "0192d3a0-0000-7000-8000-0000000000aa"


@dataclass
class Issue:
    key: str
    labels: list[str]
    fields: Mapping[str, Any]
    is_open: bool = True
    comments: list[Any] = field(default_factory=list)


@dataclass
class Tracker:
    """What all have: issues, the calls that changed something, and an answer that is lost on demand."""

    issues: list[Issue] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    lost_after: str = ""
    """A change of this name is made, and answered with 502, once."""
    url: str = ""

    def answer(self, request: Received) -> Reply:
        before = len(self.changes)
        answered = self.route(request, urlsplit(request.target))
        if len(self.changes) > before and self.changes[-1] == self.lost_after:
            self.lost_after = ""
            return Reply(502, b"the answer is lost")
        return answered

    def route(self, request: Received, target: Any) -> Reply:
        raise NotImplementedError

    def issue(self, key: str) -> Issue:
        return next(each for each in self.issues if each.key == key)


class Github(Tracker):
    may_label = True

    def route(self, request: Received, target: Any) -> Reply:
        assert request.headers["authorization"] == "Bearer token-of-github"
        assert request.headers["x-github-api-version"] == "2022-11-28"
        assert request.headers["user-agent"]
        found = re.fullmatch(r"/repos/acme/app/issues(?:/(\d+))?(/comments)?", target.path)
        assert found, target.path
        key, comments = found.groups()
        if key is None:
            return self._all(request, parse_qs(target.query))
        issue = self.issue(key)
        if comments and request.method == "POST":
            self.changes.append("comment")
            issue.comments.append(request.json)
            return reply({"id": 1}, 201)
        if comments:
            assert parse_qs(target.query) == {"since": ["2026-12-01T08:00:00Z"], "per_page": ["100"]}
            return reply(issue.comments)
        if request.method == "PATCH":
            self.changes.append(request.json["state"])
            issue.is_open = request.json["state"] == "open"
        return reply(self._shown(issue))

    def _all(self, request: Received, query: Mapping[str, list[str]]) -> Reply:
        if request.method == "GET":
            assert query["state"] == ["all"]
            return reply([self._shown(each) for each in self.issues if query["labels"][0] in each.labels])
        self.changes.append("create")
        labels = request.json["labels"] if self.may_label else []
        issue = Issue(str(len(self.issues) + 1), labels, request.json)
        self.issues.append(issue)
        return reply(self._shown(issue), 201)

    def _shown(self, issue: Issue) -> dict[str, Any]:
        return {
            "number": int(issue.key),
            "html_url": f"https://github.test/acme/app/issues/{issue.key}",
            "state": "open" if issue.is_open else "closed",
            "labels": [{"name": label, "color": "ededed"} for label in issue.labels],
        }


class Jira(Tracker):
    def route(self, request: Received, target: Any) -> Reply:
        assert request.headers["authorization"] == "Basic bWVAYWNtZS50ZXN0OnRva2VuLW9mLWppcmE="
        if target.path == "/rest/api/3/search/jql":
            return self._search(request.json)
        if target.path == "/rest/api/3/issue":
            self.changes.append("create")
            fields = request.json["fields"]
            self.issues.append(Issue(f"SEC-{len(self.issues) + 1}", fields["labels"], fields))
            return reply({"id": "1", "key": self.issues[-1].key, "self": ""}, 201)
        found = re.fullmatch(r"/rest/api/3/issue/(SEC-\d+)/(comment|transitions)", target.path)
        assert found, target.path
        issue = self.issue(found[1])
        return self._comment(issue, request) if found[2] == "comment" else self._move(issue, request)

    def _search(self, asked: Mapping[str, Any]) -> Reply:
        found = re.fullmatch(
            r'project = "SEC" AND labels = "([a-z0-9-]+)" ORDER BY created ASC', asked["jql"]
        )
        assert found, asked
        issues = [
            {"id": "1", "key": each.key, "fields": {"status": _status(is_done=not each.is_open)}}
            for each in self.issues
            if found[1] in each.labels
        ]
        return reply({"issues": issues, "isLast": True})

    def _comment(self, issue: Issue, request: Received) -> Reply:
        if request.method == "GET":
            return reply({"comments": issue.comments, "total": len(issue.comments)})
        self.changes.append("comment")
        issue.comments.append(request.json)
        return reply({"id": "1"}, 201)

    def _move(self, issue: Issue, request: Received) -> Reply:
        if request.method == "GET":
            ways = [("11", "Start", False), ("31", "Finish", True)]
            offered = [
                {"id": way, "name": name, "to": _status(is_done=is_done)} for way, name, is_done in ways
            ]
            return reply({"transitions": offered})
        issue.is_open = request.json["transition"]["id"] == "11"
        self.changes.append("open" if issue.is_open else "closed")
        return Reply(204)


class Linear(Tracker):
    def route(self, request: Received, target: Any) -> Reply:
        assert target.path == "/graphql"
        if request.headers["authorization"] != "token-of-linear":
            return reply({"errors": [{"message": "no", "extensions": {"code": "AUTHENTICATION_ERROR"}}]}, 401)
        query, given = request.json["query"], request.json["variables"]
        if "workflowStates" in query:
            assert given["team"] == TEAM
            return reply({"data": {"workflowStates": {"nodes": [{"id": given["type"]}]}}})
        for name, act in (
            ("issueCreate", self._create),
            ("issueUpdate", self._update),
            ("commentCreate", self._comment),
            ("comments(", self._comments),
            ("issues(", self._find),
        ):
            if name in query:
                return reply({"data": act(given)})
        raise AssertionError(query)

    def _find(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"issues": {"nodes": [self._shown(each) for each in self.issues if each.key == given["id"]]}}

    def _create(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self.changes.append("create")
        assert given["input"]["teamId"] == TEAM
        self.issues.append(Issue(given["input"]["id"], [], given["input"]))
        return {"issueCreate": {"issue": self._shown(self.issues[-1])}}

    def _update(self, given: Mapping[str, Any]) -> dict[str, Any]:
        issue = self.issue(given["id"])
        issue.is_open = given["state"] != "completed"
        self.changes.append("open" if issue.is_open else "closed")
        return {"issueUpdate": {"success": True}}

    def _comment(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self.changes.append("comment")
        self.issue(given["input"]["issueId"]).comments.append(given["input"])
        return {"commentCreate": {"success": True}}

    def _comments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        said = [comment for issue in self.issues for comment in issue.comments]
        return {"comments": {"nodes": [{"id": each["id"]} for each in said if each["id"] == given["id"]]}}

    def _shown(self, issue: Issue) -> dict[str, Any]:
        state = "unstarted" if issue.is_open else "completed"
        url = f"https://linear.test/acme/issue/{self.issues.index(issue) + 1}"
        return {"id": issue.key, "url": url, "state": {"type": state}}


def _status(*, is_done: bool) -> dict[str, Any]:
    return {"name": "any", "statusCategory": {"id": 1, "key": "done" if is_done else "new"}}
