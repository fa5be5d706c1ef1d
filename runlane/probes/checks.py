"""What makes an HTTP answer a finding. Pure: answers in, evidence or nothing out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urljoin

from runlane.probes.html import read_page
from runlane.probes.tls import TlsSession, describe
from runlane.probes.web import Answer
from runlane.tools.urls import MalformedUrl, Url, parse_url
from runlane.tools.vulnerabilities import Severity

MAX_EVIDENCE: Final = 500


@dataclass(frozen=True, slots=True)
class Check:
    """What is said about a finding, wherever it is found."""

    id: str
    name: str
    severity: Severity
    description: str
    remediation: str
    references: tuple[str, ...]
    cwe: tuple[str, ...]

    def finding(self, url: Url, evidence: str) -> dict[str, object]:
        """The record of a finding at `url`."""
        return {
            "check": self.id,
            "name": self.name,
            "severity": self.severity.value,
            "url": str(url),
            "host": url.host,
            "port": url.port,
            "description": self.description,
            "evidence": evidence[:MAX_EVIDENCE],
            "remediation": self.remediation,
            "references": list(self.references),
            "cwe": list(self.cwe),
        }


_ALL: Final = (
    Check(
        "exposed-git",
        "Exposed .git directory",
        Severity.HIGH,
        "The web server hands out the files of a Git repository, and with them source code and history.",
        "Do not deploy the .git directory, or deny access to it in the web server.",
        ("https://git-scm.com/docs/gitrepository-layout",),
        ("CWE-527",),
    ),
    Check(
        "exposed-env",
        "Exposed .env file",
        Severity.CRITICAL,
        "The web server hands out an environment file, which usually holds passwords and keys.",
        "Remove the file from the document root and replace every secret in it.",
        ("https://12factor.net/config",),
        ("CWE-538",),
    ),
    Check(
        "directory-listing",
        "Directory listing",
        Severity.MEDIUM,
        "The web server lists the files of a directory that has no index page.",
        "Switch automatic indexes off in the web server.",
        ("https://httpd.apache.org/docs/current/mod/mod_autoindex.html",),
        ("CWE-548",),
    ),
    Check(
        "missing-security-headers",
        "Missing security headers",
        Severity.LOW,
        "The page is sent without headers by which browsers protect its users.",
        "Send the missing headers with every HTML page.",
        ("https://owasp.org/www-project-secure-headers/",),
        ("CWE-693",),
    ),
    Check(
        "default-login",
        "Default login",
        Severity.CRITICAL,
        "The service lets in whoever knows the name and password that it was delivered with.",
        "Change the password, and let nobody reach the service who does not need it.",
        ("https://owasp.org/www-project-web-security-testing-guide/",),
        ("CWE-1392",),
    ),
    Check(
        "tls-expired",
        "Expired TLS certificate",
        Severity.MEDIUM,
        "The certificate of the service is no longer valid; clients that check it refuse to connect.",
        "Renew the certificate, and renew it automatically from now on.",
        ("https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5",),
        ("CWE-298",),
    ),
    Check(
        "tls-self-signed",
        "Self-signed TLS certificate",
        Severity.LOW,
        "The certificate is signed by itself; clients cannot tell it from that of an attacker.",
        "Use a certificate of an authority that the clients trust.",
        ("https://www.rfc-editor.org/rfc/rfc5280#section-3.2",),
        ("CWE-295",),
    ),
)

CHECKS: Final[Mapping[str, Check]] = MappingProxyType({check.id: check for check in _ALL})
"""Every check by its id."""

_GIT_HEAD: Final = re.compile(r"\s*ref: refs/[\w./-]{1,200}\s*", re.ASCII)
_ENV_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]{0,100})\s*=(.*)", re.ASCII)
_MAX_ENV_LINES: Final = 500
_LISTING_TITLE: Final = re.compile(r"(?:Index of|Directory listing for)\s+(/.*)", re.IGNORECASE)
_HEADERS: Final = (
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
)
_TLS_HEADER: Final = "strict-transport-security"


DEFAULT_LOGINS: Final = (("admin", "admin"), ("admin", "password"))
"""Tried at most once each: more would lock accounts."""


def asks_for_login(answer: Answer) -> bool:
    """Whether a name and a password are asked for in the way of HTTP."""
    challenge = answer.headers.get("www-authenticate", "").lower()
    return answer.status == 401 and challenge.startswith("basic")


def find_default_login(answer: Answer, name: str) -> str | None:
    """Evidence that the answer to a request with a default login lets in."""
    if answer.status >= 400:
        return None
    return f"user {name} with its default password: status {answer.status}"


def find_exposed_git(answer: Answer) -> str | None:
    """Evidence that the answer is a repository's HEAD file."""
    if answer.status != 200 or answer.is_html or answer.is_cut or not _GIT_HEAD.fullmatch(answer.text):
        return None
    return answer.text.strip()


def find_exposed_env(answer: Answer) -> str | None:
    """Evidence that the answer is an environment file: every line an assignment, values masked."""
    if answer.status != 200 or answer.is_html or answer.is_cut:
        return None
    lines = [line.strip() for line in answer.text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines or len(lines) > _MAX_ENV_LINES:
        return None
    matches = [_ENV_LINE.fullmatch(line) for line in lines]
    names = [match[1] for match in matches if match]
    if len(names) < len(lines):
        return None
    return "\n".join(f"{name}=***" for name in names)


def find_listing(answer: Answer) -> str | None:
    """Evidence that the answer is a server's listing of the directory that was asked for.

    The title alone proves nothing: articles are called "Index of" too. A listing is named after its own path
    and leads nowhere but to the entries, the parent and itself in another order.
    """
    if answer.status != 200 or not answer.is_html or not answer.url.path.endswith("/"):
        return None
    page = read_page(answer.text)
    match = _LISTING_TITLE.fullmatch(page.title or "")
    if match is None or unquote(match[1]).rstrip("/") != unquote(answer.url.path).rstrip("/"):
        return None
    references = [tag.attributes["href"] for tag in page.tags if tag.name == "a" and "href" in tag.attributes]
    if not references or not all(_is_entry(answer.url, reference) for reference in references):
        return None
    return f"{page.title}: {', '.join(references)}"


def find_missing_headers(answer: Answer) -> str | None:
    """Evidence that a page lacks headers; only HTML with status 200 is a page."""
    if answer.status != 200 or not answer.is_html:
        return None
    missing = [name for name in _HEADERS if not answer.headers.get(name)]
    if "frame-ancestors" in answer.headers.get("content-security-policy", "").lower():
        missing = [name for name in missing if name != "x-frame-options"]  # which it replaces
    if answer.url.scheme == "https" and not answer.headers.get(_TLS_HEADER):
        missing.append(_TLS_HEADER)
    return f"missing: {', '.join(missing)}" if missing else None


def find_expired(session: TlsSession, now: datetime) -> str | None:
    """Evidence that the certificate's time is over."""
    certificate = describe(session, now)
    return f"not valid after {certificate['not_after']}" if certificate.get("expired") else None


def find_self_signed(session: TlsSession, now: datetime) -> str | None:
    """Evidence that the certificate is its own issuer."""
    certificate = describe(session, now)
    if not certificate.get("self_signed"):
        return None
    return f"subject and issuer: {certificate.get('subject_cn')}, SHA-256 {certificate.get('sha256')}"


def _is_entry(directory: Url, reference: str) -> bool:
    try:
        url = parse_url(urljoin(str(directory), reference.strip()))
    except (MalformedUrl, ValueError):
        return False
    if url.origin != directory.origin:
        return False
    parent = directory.path.rstrip("/").rpartition("/")[0] + "/"
    entry = url.path.removeprefix(directory.path).rstrip("/")
    is_inside = url.path.startswith(directory.path) and "/" not in entry
    return is_inside or url.path == parent
