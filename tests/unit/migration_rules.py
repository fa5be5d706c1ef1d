"""What a migration may do while processes of the version before still run: add, and hold no lock for long.

Judged by the text of its statements, so it is strict rather than clever. A statement that is right all the
same says why behind `-- expand-only:` in its own lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

EXEMPTION: Final = re.compile(r"--\s*expand-only:\s*\S+")
_COMMENT: Final = re.compile(r"--[^\n]*")
_BODY: Final = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
_NEW_TABLE: Final = re.compile(r"create\s+table\s+(?:if\s+not\s+exists\s+)?(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of statement that is refused, and what to do instead."""

    form: re.Pattern[str]
    fault: str
    is_fine_on_new_tables: bool = True
    """A table that the same migration makes is nobody's yet."""


def _rule(form: str, fault: str, *, on_new: bool = True) -> Rule:
    return Rule(re.compile(form, re.IGNORECASE | re.DOTALL), fault, on_new)


_ON: Final = r"alter\s+table\s+(?:only\s+)?(?:if\s+exists\s+)?(?P<table>\w+)\b[^;]*?"
_COLUMN: Final = r"\badd\s+(?:column\s+)?(?!constraint|check|foreign|unique|primary)\w+\b"
_CONSTRAINT: Final = r"\badd\s+(?:constraint\s+\w+\s+)?"
RULES: Final = (
    _rule(r"^drop\s+table\b", "a table is dropped two releases after its last use", on_new=False),
    _rule(_ON + r"\bdrop\s+column\b", "a column is dropped two releases after its last use"),
    _rule(_ON + r"\brename\b", "a name in use is not changed: add, copy, drop later"),
    _rule(
        _ON + r"\balter\s+(?:column\s+)?\w+\s+(?:set\s+data\s+)?type\b", "a change of type rewrites the table"
    ),
    _rule(_ON + r"\bset\s+not\s+null\b", "add a CHECK NOT VALID, validate it, SET NOT NULL a release later"),
    _rule(
        _ON + _COLUMN + r"(?![^,;]*\bdefault\b)[^,;]*?\bnot\s+null\b",
        "a new column that must be there has a default: older processes do not write it",
    ),
    _rule(
        _ON + _CONSTRAINT + r"(?:check|foreign\s+key)\b(?![^;]*\bnot\s+valid\b)",
        "a constraint is added NOT VALID and validated later: the scan must not hold the lock",
    ),
    _rule(
        _ON + _CONSTRAINT + r"(?:unique|primary\s+key)\b(?!\s+using\s+index)",
        "make the index CONCURRENTLY, then add the constraint USING INDEX",
    ),
    _rule(
        r"^create\s+(?:unique\s+)?index\s+(?!concurrently\b).*?\bon\s+(?:only\s+)?(?P<table>\w+)",
        "an index is made CONCURRENTLY, in an autocommit block: else nobody can write meanwhile",
    ),
    _rule(r"^drop\s+index\s+(?!concurrently\b)", "an index is dropped CONCURRENTLY", on_new=False),
    _rule(
        r"^drop\s+(?:function|trigger|view|policy|type|schema|sequence)\b", "what is in use is not dropped"
    ),
    _rule(r"^(?:update|delete\s+from)\s+(?P<table>\w+)", "rows are changed by a sweep, in batches"),
    _rule(r"^(?:lock\s+table|truncate|vacuum\s+full|cluster|reindex)\b", "that is a lock for long"),
    _rule(r"^revoke\b.*\bfrom\b", "a right that a process uses is not taken away", on_new=False),
)


def faults_of(sql: str) -> list[str]:
    """What is wrong with the statements of a migration."""
    new = {name.lower() for name in _NEW_TABLE.findall(_COMMENT.sub("", sql))}
    return [fault for statement in _statements(sql) for fault in _faults(statement, new)]


def _faults(statement: str, new: set[str]) -> Iterator[str]:
    if EXEMPTION.search(statement):
        return
    text = _COMMENT.sub("", statement).strip()
    for rule in RULES:
        found = rule.form.search(text)
        if found is None:
            continue
        table = found.groupdict().get("table")
        if rule.is_fine_on_new_tables and table and table.lower() in new:
            continue
        yield f"{rule.fault}: {' '.join(text.split())[:120]}"


def _statements(sql: str) -> list[str]:
    """Apart at semicolons, bodies of functions left out: what they do is done when they are called."""
    return [each for each in _BODY.sub("''", sql).split(";") if each.strip()]
