"""Findings of a web service that change nothing: checks with few false alarms.

None needs credentials. Whether a service lets in with a default login is only tried if the step's option
`default_logins` says so: it is a login, and it is seen.
"""

import base64
import secrets
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from runlane.probes.checks import (
    CHECKS,
    DEFAULT_LOGINS,
    asks_for_login,
    find_default_login,
    find_expired,
    find_exposed_env,
    find_exposed_git,
    find_listing,
    find_missing_headers,
    find_self_signed,
)
from runlane.probes.egress import Egress, target_host
from runlane.probes.job import Done, Emit, ProbeJob
from runlane.probes.stream import serve_stream
from runlane.probes.tls import TlsSession, utc_now
from runlane.probes.web import Answer, Home, NoAnswer, WebClient
from runlane.probes.webprobe import candidate_urls
from runlane.tools import TOOLS
from runlane.tools.urls import Url, parse_url

_ROOT_CHECKS: Final[dict[str, Callable[[Answer], str | None]]] = {
    "directory-listing": find_listing,
    "missing-security-headers": find_missing_headers,
}
_FILE_CHECKS: Final[dict[str, tuple[str, Callable[[Answer], str | None]]]] = {
    "exposed-git": (".git/HEAD", find_exposed_git),
    "exposed-env": (".env", find_exposed_env),
}
_TLS_CHECKS: Final[dict[str, Callable[[TlsSession, datetime], str | None]]] = {
    "tls-expired": find_expired,
    "tls-self-signed": find_self_signed,
}
_MAX_BODY_BYTES: Final = 256 * 1024
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Checks one origin."""
    egress = Egress(job.options)
    start = parse_url(candidate_urls(job.target)[0].origin)
    address = await egress.address_of(job.target)
    if address is None:
        return Done(complete=False, coverage={"url": start.origin, "checks": []})
    host = target_host(job.target)
    home = Home(host, start.port, job.options.headers())
    async with WebClient(egress, {host: address}, home) as client:
        may_log_in = job.options.values.get("default_logins") is True
        checkup = _Checkup(client, start, emit, may_log_in=may_log_in)
        await checkup.run()
    coverage = {"url": start.origin, "checks": checkup.made}
    return Done(complete=checkup.is_complete, reachable=bool(checkup.made), coverage=coverage)


class _Checkup:
    """The checks of one service; `made` are those whose question was answered."""

    def __init__(self, client: WebClient, start: Url, emit: Emit, *, may_log_in: bool) -> None:
        self.made: list[str] = []
        self.is_complete = True
        self._client = client
        self._start = start
        self._emit = emit
        self._may_log_in = may_log_in

    async def run(self) -> None:
        root = await self._get(self._start)
        if root is None:
            return
        for check, find_in_root in _ROOT_CHECKS.items():
            await self._settle(check, root.url, find_in_root(root))
        if root.tls is not None:
            for check, find_in_session in _TLS_CHECKS.items():
                await self._settle(check, root.url, find_in_session(root.tls, utc_now()))
        if self._may_log_in:
            await self._check_logins(root)
        await self._check_files()

    async def _check_logins(self, root: Answer) -> None:
        evidence = None
        if asks_for_login(root):
            for name, password in DEFAULT_LOGINS:
                token = base64.b64encode(f"{name}:{password}".encode()).decode()
                answer = await self._get(root.url, {"Authorization": f"Basic {token}"})
                if answer is None:
                    return
                evidence = evidence or find_default_login(answer, name)
                if evidence is not None:
                    break
        await self._settle("default-login", root.url, evidence)

    async def _check_files(self) -> None:
        # a server that has every path has this one too, and what it says for it proves nothing elsewhere
        nowhere = await self._get(parse_url(f"{self._start.origin}{secrets.token_hex(12)}"))
        if nowhere is None:
            return
        for check, (path, find) in _FILE_CHECKS.items():
            answer = await self._get(parse_url(f"{self._start.origin}{path}"))
            if answer is not None:
                evidence = find(answer) if find(nowhere) is None else None
                await self._settle(check, answer.url, evidence)

    async def _settle(self, check: str, url: Url, evidence: str | None) -> None:
        self.made.append(check)
        if evidence is not None:
            await self._emit(CHECKS[check].finding(url, evidence))

    async def _get(self, url: Url, headers: Mapping[str, str] = _NO_HEADERS) -> Answer | None:
        try:
            return await self._client.get(url, _MAX_BODY_BYTES, headers)
        except NoAnswer:
            self.is_complete = False
            return None


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["webcheck"], run_job)


if __name__ == "__main__":
    sys.exit(main())
