"""Admit: one pending job per subject in the scope of a step.

The scope is frozen when the step opens (`scope_as_of`), a cursor on the step's row remembers how far admit
has come, and the unique key of `jobs` makes a repeated chunk write nothing twice. Every chunk holds the run's
row `FOR SHARE`: a cancelled run admits no more. The assets that targets have by themselves are made before a
step over assets or services is admitted. An excluded subject has a job as well, skipped at once: an operator
sees what was left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from runlane import names
from runlane.db import outbox, preparing, scope
from runlane.db.guards import step_may
from runlane.db.pool import Connection, Record
from runlane.events import EVENT_CATALOG, Envelope, envelope
from runlane.events.payloads import JobCreated
from runlane.jobs import STEPS, StepStatus, StepVerb
from runlane.tools import FansOut
from runlane.tools.addresses import is_inside_only
from runlane.tools.targets import TargetKind

CHUNK: Final = 1_000
"""Subjects of one transaction."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What one chunk did."""

    jobs: int
    is_done: bool
    """Nothing is left to admit: the scope is used up, or the run or step is closed."""


_OPEN = f"""
UPDATE run_steps
SET status = '{STEPS.target_of(StepVerb.OPEN)}', opened_at = clock_timestamp(),
  scope_as_of = coalesce($3, clock_timestamp())
WHERE run_id = $1 AND step_id = $2 AND {step_may(StepVerb.OPEN)}
"""

HAS_SECRETS: Final = "jsonb_path_exists(s.config, '$.**.secret_ref')"
"""Whether options refer to secrets. Such jobs are for workers of the workspace itself: a host that several
workspaces share is given none of their credentials."""

_STEP = f"""
SELECT s.workspace_id, s.run_id, s.step_id, s.tool_id, s.scope_as_of, s.admit_cursor, s.admitted_at, s.status,
       t.fans_out, t.toolset, t.category, t.workspace_id IS NOT NULL OR {HAS_SECRETS} AS is_own_only,
       coalesce(s.priority, h.priority) AS priority, w.allowed_networks::text[] AS allowed_networks,
       {scope.any_in("s.workspace_id")} AS has_exclusions,
       {preparing.is_unprepared("s.run_id")} AS is_unprepared
FROM run_steps s
JOIN job_histories h ON h.id = s.run_id
JOIN workspaces w ON w.id = s.workspace_id
JOIN tools t ON t.id = s.tool_id
WHERE s.run_id = $1 AND s.step_id = $2 AND h.closed_at IS NULL
FOR SHARE OF h FOR NO KEY UPDATE OF s
"""

# Shares of two steps that overlap would keep a cancel, which needs the row alone, from it until all is there.
_TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_TARGETS = """FROM run_targets r
JOIN targets t ON t.id = r.target_id AND t.deleted_at IS NULL"""

_ASSETS = f"""{_TARGETS}
JOIN assets a ON a.workspace_id = r.workspace_id AND a.target_id = r.target_id
  AND a.enabled AND a.gone_at IS NULL"""

_OPEN_SERVICES = f"""{_ASSETS}
JOIN asset_services s ON s.workspace_id = a.workspace_id AND s.asset_id = a.id
  AND s.closed_at IS NULL AND s.first_seen <= $2"""

_SERVICE = """s.id AS subject_id, a.target_id, a.id AS asset_id, s.id AS service_id, t.network_id,
       jsonb_build_object('host', a.value, 'kind', 'host', 'port', s.port,
                          'address', coalesce(host(s.address), host(a.addresses[1])))"""

_FIRST: Final = UUID(int=0)
"""Before every id: with a condition of its own for no cursor, a prepared plan would not start behind one."""

_SUBJECTS: Final = {
    # Target by target behind the cursor: a planner that joins first reads the whole selection for each chunk.
    FansOut.TARGETS: """
SELECT t.id AS subject_id, t.id AS target_id, NULL::uuid AS asset_id, NULL::uuid AS service_id, t.network_id,
       jsonb_build_object('host', t.value, 'kind', t.kind,
                          'address', CASE WHEN t.kind = 'ip' THEN t.value END) AS spec
FROM run_targets r
CROSS JOIN LATERAL (
  SELECT * FROM targets t WHERE t.id = r.target_id AND t.deleted_at IS NULL AND t.created_at <= $2 OFFSET 0
) t
WHERE r.run_id = $1 AND r.target_id > $3
ORDER BY r.target_id
LIMIT $4""",
    FansOut.ASSETS: f"""
SELECT a.id AS subject_id, a.target_id, a.id AS asset_id, NULL::uuid AS service_id, t.network_id,
       jsonb_build_object('host', a.value, 'kind', 'host', 'address', host(a.addresses[1])) AS spec
{_ASSETS}
WHERE r.run_id = $1 AND a.created_at <= $2 AND a.id > $3
ORDER BY a.id
LIMIT $4""",
    FansOut.SERVICES: f"""
SELECT {_SERVICE} || jsonb_build_object('tls', s.is_tls) AS spec
{_OPEN_SERVICES}
WHERE r.run_id = $1 AND s.protocol = 'tcp' AND s.id > $3
ORDER BY s.id
LIMIT $4""",
    FansOut.WEB_SERVICES: f"""
SELECT {_SERVICE} || jsonb_build_object('url', s.url) AS spec
{_OPEN_SERVICES}
WHERE r.run_id = $1 AND s.web_seen_at IS NOT NULL AND s.id > $3
ORDER BY s.id
LIMIT $4""",
}

_INSERT = """
INSERT INTO jobs (workspace_id, run_id, step_id, tool_id, toolset, category, priority,
                  target_id, asset_id, service_id, network_id, subject_id, spec, own_only)
SELECT $1, $2, $3, $4, $5, $6, $7, u.*
FROM unnest($8::uuid[], $9::uuid[], $10::uuid[], $11::uuid[], $12::uuid[], $13::jsonb[], $14::boolean[]) u
ON CONFLICT (run_id, step_id, subject_id, ordinal, generation) DO NOTHING
RETURNING id, target_id, asset_id
"""

_ADVANCE = """
UPDATE run_steps
SET admit_cursor = coalesce($3, admit_cursor), admitted_at = CASE WHEN $4 THEN clock_timestamp() END,
  jobs_total = jobs_total + $5
WHERE run_id = $1 AND step_id = $2
"""


async def open_step(
    conn: Connection, run_id: UUID, step_id: str, scope_as_of: datetime | None = None
) -> None:
    """Opens a waiting step and freezes its scope as of then, or now; another one stays as it is."""
    await conn.execute(_OPEN, run_id, step_id, scope_as_of)


async def admit_chunk(conn: Connection, run_id: UUID, step_id: str) -> Admitted:
    """Admits the next chunk of an open step, with a `job.created` for each job.

    One transaction of the caller. Harmless when repeated: it goes on behind the cursor. Steps of one run take
    turns.
    """
    await conn.execute(_TURN, f"admit/{run_id}")
    step = await conn.fetchrow(_STEP, run_id, step_id)
    if step is None or step["status"] != StepStatus.RUNNING or step["admitted_at"] is not None:
        return Admitted(0, is_done=True)
    is_over_targets = step["fans_out"] == FansOut.TARGETS
    if step["is_unprepared"] and not is_over_targets:
        await preparing.prepare_some(conn, run_id)
        return Admitted(0, is_done=False)
    subjects = await conn.fetch(
        _SUBJECTS[step["fans_out"]], run_id, step["scope_as_of"], step["admit_cursor"] or _FIRST, CHUNK
    )
    if step["is_unprepared"]:
        await preparing.prepare_these(conn, run_id, [subject["target_id"] for subject in subjects])
    created = await _insert(conn, step, subjects) if subjects else []
    await outbox.insert(conn, [_created(step, row) for row in created])
    if step["has_exclusions"]:
        await scope.skip_excluded(conn, [row["id"] for row in created])
    is_done = len(subjects) < CHUNK
    cursor = subjects[-1]["subject_id"] if subjects else None
    await conn.execute(_ADVANCE, run_id, step_id, cursor, is_done, len(created))
    return Admitted(len(created), is_done)


def _is_own_only(spec: Mapping[str, str | None], allowed: tuple[str, ...]) -> bool:
    """Whether only the workspace's own workers may contact what the job is about: shared ones are outside.

    Judged is what is written down: the address that the job is given, or a target that is one. A name whose
    address nobody knows yet may turn out to lead inside; then a shared worker refuses it.
    """
    place = spec["address"] or (None if spec["kind"] == TargetKind.DOMAIN else spec["host"])
    return bool(allowed and place) and is_inside_only(str(place), allowed)


async def _insert(conn: Connection, step: Record, subjects: list[Record]) -> list[Record]:
    columns = ("target_id", "asset_id", "service_id", "network_id", "subject_id", "spec")
    allowed = tuple(step["allowed_networks"])
    return await conn.fetch(
        _INSERT,
        step["workspace_id"],
        step["run_id"],
        step["step_id"],
        step["tool_id"],
        step["toolset"],
        step["category"],
        step["priority"],
        *([subject[column] for subject in subjects] for column in columns),
        [step["is_own_only"] or _is_own_only(subject["spec"], allowed) for subject in subjects],
    )


def _created(step: Record, row: Record) -> Envelope:
    return envelope(
        EVENT_CATALOG.job.created,
        JobCreated(
            job_id=row["id"],
            run_id=step["run_id"],
            step_id=step["step_id"],
            tool_id=step["tool_id"],
            attempt=0,
            category=step["category"],
            target_id=row["target_id"],
            asset_id=row["asset_id"],
        ),
        workspace_id=step["workspace_id"],
        subject=names.job_subject(row["id"]),
    )
