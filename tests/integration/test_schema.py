"""The schema mirrors the machines."""

import re
from typing import Any, get_args

import pytest

from api import inventory_schemas
from runlane.db.commands import CommandKind
from runlane.db.guards import LIVE_JOB
from runlane.db.pool import Pool
from runlane.db.workers import WorkerStatus
from runlane.events.payloads import FindingSeverity
from runlane.jobs import JOBS, RUNS, STEPS, Machine, Outcome
from runlane.tools.vulnerabilities import Severity

pytestmark = pytest.mark.integration

TABLES: list[tuple[str, Machine[Any, Any]]] = [("jobs", JOBS), ("run_steps", STEPS), ("job_histories", RUNS)]


async def checks(pool: Pool, table: str) -> list[str]:
    rows = await pool.fetch(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'",
        table,
    )
    return [row[0] for row in rows]


def literals(definition: str) -> set[str]:
    return set(re.findall(r"'([a-z_]+)'::text", definition))


@pytest.mark.parametrize(("table", "machine"), TABLES, ids=[name for name, _ in TABLES])
async def test_check_constraints_list_the_states_of_the_machine(
    pool: Pool, table: str, machine: Machine[Any, Any]
) -> None:
    found = [literals(check) for check in await checks(pool, table)]

    assert {str(status) for status in type(machine.initial)} in found
    assert {str(status) for status in machine.terminal} in found


async def test_outcomes_of_attempts_are_those_of_the_code(pool: Pool) -> None:
    found = [literals(check) for check in await checks(pool, "job_attempts")]

    assert {str(outcome) for outcome in Outcome} in found


async def test_live_jobs_are_those_without_an_end(pool: Pool) -> None:
    ends = [check for check in await checks(pool, "jobs") if LIVE_JOB.replace(" NULL", " NOT NULL") in check]

    assert [literals(check) for check in ends] == [{str(status) for status in JOBS.terminal}]


async def test_states_of_a_worker_are_those_of_the_code(pool: Pool) -> None:
    found = [literals(check) for check in await checks(pool, "workers")]

    assert {str(status) for status in WorkerStatus} in found


async def test_kinds_of_commands_include_those_of_the_code(pool: Pool) -> None:
    found = [literals(check) for check in await checks(pool, "commands")]

    assert any({str(kind) for kind in CommandKind} <= kinds for kinds in found)


async def test_severities_are_the_same_wherever_they_are_listed(pool: Pool) -> None:
    found = [literals(check) for check in await checks(pool, "vulnerabilities")]
    severities = [str(severity) for severity in Severity]

    assert set(severities) in found
    assert severities == list(get_args(FindingSeverity)) == list(get_args(inventory_schemas.Severity))


async def test_states_of_a_finding_are_those_of_the_api(pool: Pool) -> None:
    found = [literals(check) for check in await checks(pool, "vulnerabilities")]

    assert set(get_args(inventory_schemas.FindingStatus)) in found
