"""Migrations after the first release only add, so that an upgrade needs no standstill."""

import ast
import hashlib
from pathlib import Path
from typing import Final

import pytest

from tests.unit.migration_rules import faults_of

ROOT: Final = Path(__file__).parents[2] / "migrations"
FILES: Final = sorted((ROOT / "versions").glob("*.py"))
RELEASED: Final = [line.split("  ") for line in (ROOT / "released.txt").read_text().splitlines()]
"""Digest and file of each migration that a release has; lines are added by a release and never changed."""


def texts_of(source: str) -> str:
    """All SQL that a migration may run: every text in it but the docstrings."""
    tree = ast.parse(source)
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
    ]
    return ";\n".join(texts)


def test_released_migrations_are_as_they_were_released() -> None:
    paths = [ROOT / "versions" / file for _, file in RELEASED]

    assert [[hashlib.sha256(path.read_bytes()).hexdigest(), path.name] for path in paths] == RELEASED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_migration_after_the_first_release_only_adds(path: Path) -> None:
    released = {file for _, file in RELEASED}
    if not released or path.name in released:
        return

    assert faults_of(texts_of(path.read_text())) == []


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE jobs",
        "ALTER TABLE jobs DROP COLUMN spec",
        "ALTER TABLE jobs RENAME COLUMN spec TO input",
        "ALTER TABLE jobs RENAME TO work",
        "ALTER TABLE jobs ALTER COLUMN attempt TYPE bigint",
        "ALTER TABLE jobs ALTER spec SET NOT NULL",
        "ALTER TABLE jobs ADD COLUMN colour text NOT NULL",
        "ALTER TABLE jobs ADD colour text CHECK (colour <> '') NOT NULL",
        "ALTER TABLE jobs ADD CONSTRAINT short CHECK (length(reason) < 100)",
        "ALTER TABLE jobs ADD FOREIGN KEY (worker_id) REFERENCES workers",
        "ALTER TABLE jobs ADD CONSTRAINT one UNIQUE (run_id)",
        "CREATE INDEX jobs_reason ON jobs (reason)",
        "CREATE UNIQUE INDEX jobs_reason ON jobs (reason)",
        "DROP INDEX jobs_reason",
        "UPDATE jobs SET reason = NULL",
        "LOCK TABLE jobs",
        "REVOKE UPDATE ON jobs FROM runlane_system",
        "DROP FUNCTION runlane_drop_outbox_partition",
    ],
)
def test_statement_that_an_older_process_would_notice_is_refused(sql: str) -> None:
    assert len(faults_of(f"SELECT 1; {sql};")) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE colours (id uuid NOT NULL); CREATE INDEX colours_id ON colours (id)",
        "CREATE TABLE colours (id uuid); ALTER TABLE colours ADD CONSTRAINT one UNIQUE (id)",
        "ALTER TABLE jobs ADD COLUMN colour text",
        "ALTER TABLE jobs ADD COLUMN colour text NOT NULL DEFAULT 'red'",
        "ALTER TABLE jobs ADD COLUMN colour text DEFAULT 'red' NOT NULL, ADD size integer",
        "ALTER TABLE jobs ADD CONSTRAINT short CHECK (length(reason) < 100) NOT VALID",
        "ALTER TABLE jobs VALIDATE CONSTRAINT short",
        "ALTER TABLE jobs ADD CONSTRAINT one UNIQUE USING INDEX jobs_one",
        "CREATE INDEX CONCURRENTLY jobs_reason ON jobs (reason)",
        "DROP INDEX CONCURRENTLY jobs_reason",
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ DELETE FROM jobs; $$",
        "GRANT SELECT ON jobs TO runlane_api",
        "DROP TABLE jobs -- expand-only: nothing has used it since 0.3",
    ],
)
def test_statement_that_only_adds_passes(sql: str) -> None:
    assert faults_of(sql) == []


def test_statements_of_a_migration_are_found_wherever_they_stand() -> None:
    source = '"""DROP TABLE a"""\nSQL = "DROP TABLE b"\ndef upgrade():\n    """DROP TABLE c."""\n'

    assert len(faults_of(texts_of(source))) == 1


def test_migrations_run_one_after_the_other() -> None:
    """Each names the one before it, in the order of the files."""
    found = [
        {
            target.id: node.value.value
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for path in FILES
    ]

    assert [each["down_revision"] for each in found] == [None, *(each["revision"] for each in found[:-1])]
