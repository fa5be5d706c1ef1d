"""Findings.

Sample: `{"check": "exposed-git", "severity": "high", "url": "http://a.example.com/.git/HEAD", …}`
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runlane.tools.records import Fields, MalformedRecord, digest

_CHECK: Final = re.compile(r"[a-z0-9][a-z0-9._:-]{0,199}")
_CWE: Final = re.compile(r"CWE-[0-9]{1,6}")


class Severity(StrEnum):
    """How bad a finding is, least first."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


_SEVERITIES: Final = frozenset(severity.value for severity in Severity)


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """One finding at one place. Natural key: `key`, the hash of check, host, port, path and query.

    The place is part of the identity: the same fault on another port or page is another finding.
    """

    key: bytes
    check: str
    name: str
    severity: Severity
    url: str
    host: str
    port: int
    description: str | None
    evidence: str | None
    """At most 500 characters; the tool has masked secrets."""
    remediation: str | None
    references: tuple[str, ...]
    cwe: tuple[str, ...]


def parse(raw: object) -> FindingRecord:
    """Reads one record; host and port are those of the URL, whatever the record claims.

    Raises:
        MalformedRecord: see there.
    """
    fields = Fields.of(raw)
    check = fields.text("check", 200)
    if not _CHECK.fullmatch(check):
        raise MalformedRecord("check: lower-case identifier expected")
    url = fields.url("url")
    return FindingRecord(
        key=digest(check, url.host, url.port, url.path, url.query),
        check=check,
        name=fields.text("name", 500),
        severity=Severity(fields.one_of("severity", _SEVERITIES)),
        url=str(url),
        host=url.host,
        port=url.port,
        description=fields.excerpt("description", 4_000),
        evidence=fields.excerpt("evidence", 500),
        remediation=fields.excerpt("remediation", 4_000),
        references=fields.texts("references", 1_000, 20),
        cwe=_parse_cwe(fields),
    )


def _parse_cwe(fields: Fields) -> tuple[str, ...]:
    weaknesses = fields.texts("cwe", 20, 20)
    if not all(_CWE.fullmatch(weakness) for weakness in weaknesses):
        raise MalformedRecord("cwe: identifiers such as CWE-79 expected")
    return weaknesses
