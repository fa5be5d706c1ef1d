"""The API as commands use it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2

from runlane import names
from runlane.cli import answers
from runlane.cli.answers import as_object, objects_in
from runlane.cli.errors import Cause, CommandError, ExitCode, exit_code_of_status
from runlane.cli.profile import Profile

Json = answers.Json
Query = Mapping[str, str | int | list[str]]

_RETRIES_S: Final = (0.2, 0.5, 1.0, 2.0)
_STREAM_SILENCE_S: Final = 60.0
"""A stream that says nothing for longer, not even a sign of life, is broken."""

_PAGE: Final = 200
_MIN_TAIL: Final = 6


class ApiClient:
    """Calls the API with one key; every failure is a CommandError with its exit code.

    Reads are tried again while the API is away, and so are writes that say so.
    """

    def __init__(self, profile: Profile) -> None:
        is_local = urlsplit(profile.api_url).hostname in {"127.0.0.1", "localhost", "::1"}
        self._client = httpx2.Client(
            base_url=profile.api_url,
            headers={"Authorization": f"Bearer {profile.api_key}"},
            timeout=httpx2.Timeout(30.0, connect=5.0),
            trust_env=not is_local,  # a proxy of the environment is not meant for this machine
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, query: Query | None = None) -> Json:
        """Reads one thing or one page."""
        return self._call(_Call("GET", path, query=query))

    def post(self, path: str, body: Json | None = None, *, once: bool = False) -> Json:
        """Changes something. `once` sends an Idempotency-Key, so that a lost answer is asked for again."""
        return self._call(_Call("POST", path, body=body, is_once=once))

    @contextmanager
    def streamed(self, path: str, query: Query | None = None) -> Iterator[httpx2.Response]:
        """Reads an answer that is no JSON as it comes, however long that takes.

        Raises:
            CommandError: the API refuses, does not answer, or breaks off.
        """
        timeout = httpx2.Timeout(_STREAM_SILENCE_S, connect=5.0)
        try:
            with self._client.stream("GET", path, params=query, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise _failure(response)
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def put(self, path: str, body: Json) -> Json:
        """Sets something; done twice, it is done once."""
        return self._call(_Call("PUT", path, body=body, is_once=True))

    def patch(self, path: str, body: Json) -> Json:
        """Changes fields of something as it is now; refused, if somebody changes it meanwhile."""
        found = self.get(path)
        return self._call(_Call("PATCH", path, body=body, version=str(found["version"])))

    def items(self, path: str, query: Query | None = None, limit: int | None = None) -> Iterator[Json]:
        """Yields the rows of a list, page by page, up to `limit`."""
        left = limit if limit is not None else 10**9
        asked: dict[str, str | int | list[str]] = dict(query or {})
        while left > 0:
            page = self.get(path, {**asked, "limit": min(left, _PAGE)})
            rows = objects_in(page, "items")
            yield from rows
            left -= len(rows)
            if page["next"] is None:
                return
            asked["after"] = str(page["next"])

    def resolve(self, path: str, text: str) -> str:
        """Turns what a person typed into an id: an id, `@last`, or a unique tail of at least 6 characters.

        Raises:
            CommandError: none or several fit.
        """
        try:
            return str(UUID(text))
        except ValueError:
            pass
        ids = [str(row["id"]) for row in self.items(path, limit=1 if text == "@last" else 1000)]
        fits = ids if text == "@last" else [each for each in ids if each.endswith(text.lower())]
        if len(fits) == 1 and (text == "@last" or len(text) >= _MIN_TAIL):
            return fits[0]
        if len(fits) > 1:
            message = f"{text} fits {len(fits)}: {', '.join(fits[:5])}"
            raise CommandError(message, ExitCode.USAGE)
        raise CommandError(f"nothing of that id: {text}", ExitCode.NOT_FOUND)

    def _call(self, call: "_Call") -> Json:
        pauses = list(_RETRIES_S) if call.is_once or call.method == "GET" else []
        while True:
            failure = self._try(call)
            if not isinstance(failure, CommandError):
                return failure
            is_passing = (
                failure.exit_code is ExitCode.UNREACHABLE or failure.cause.code == names.IN_FLIGHT_CODE
            )
            if not is_passing or not pauses:
                raise failure
            time.sleep(pauses.pop(0))

    def _try(self, call: "_Call") -> Json | CommandError:
        headers = {"Idempotency-Key": call.key} if call.is_once else {}
        if call.version is not None:
            headers["If-Match"] = f'"{call.version}"'
        try:
            response = self._client.request(
                call.method, call.path, params=call.query, json=call.body, headers=headers
            )
        except httpx2.TransportError as error:
            return self._unreachable(error)
        return as_object(response.json()) if response.is_success else _failure(response)

    def _unreachable(self, error: httpx2.TransportError) -> CommandError:
        message = f"{self._client.base_url} does not answer: {error}"
        return CommandError(message, ExitCode.UNREACHABLE, hint="runlane doctor")


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: Query | None = None
    body: Json | None = None
    is_once: bool = False
    version: str | None = None
    """Of the thing that is changed, as it was read."""
    key: str = field(default_factory=lambda: str(uuid4()))
    """The same for every try of a call that is to be done once."""


def _failure(response: httpx2.Response) -> CommandError:
    exit_code = exit_code_of_status(response.status_code)
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return CommandError(f"the API answered {response.status_code}", exit_code)
    fields = problem.get("fields")
    cause = Cause(
        code=str(problem.get("code", "")),
        request_id=str(problem.get("request_id", "")),
        fields={str(k): str(v) for k, v in fields.items()} if isinstance(fields, dict) else {},
    )
    return CommandError(str(problem.get("detail", "")), exit_code, cause=cause)
