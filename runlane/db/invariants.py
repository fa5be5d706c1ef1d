"""What must hold whatever was killed, restarted or raced: one table of named statements.

Each statement returns the things that break its sentence, so no row is the good answer. Those for `ALWAYS`
hold in any committed snapshot, also in the middle of a run; those for `REST` once nothing is under way and
every event was read. Chaos tests, the doctor and a metric read the same table.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from runlane import names
from runlane.db.acts import Action
from runlane.db.guards import COMPLETED, IN_PROGRESS
from runlane.db.pool import Connection
from runlane.db.remerge import REMERGE_KEY
from runlane.events import EVENT_POLICY, Lane
from runlane.jobs import JOBS, MAX_FAILURES, RUNS, STEPS, Outcome

SAMPLE: Final = 5
"""Offenders that a violation names."""

OUTBOX_DAYS: Final = 7
"""Events older than this may be gone from the outbox, and their jobs are not asked for them."""

_PAGE: Final = 1_000


class When(StrEnum):
    """When an invariant holds."""

    ALWAYS = "always"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise. `sql` returns one text column, `offender`: a row for each thing that breaks it."""

    name: str
    sentence: str
    sql: str
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, with up to five of those that break it."""

    name: str
    sentence: str
    count: int
    sample: tuple[str, ...]


def _list(values: frozenset[StrEnum] | tuple[str, ...]) -> str:
    return ", ".join(sorted(f"'{value}'" for value in values))


_FINAL_JOB: Final = _list(frozenset[StrEnum](JOBS.terminal))
_FINAL_STEP: Final = _list(frozenset[StrEnum](STEPS.terminal))
_FINAL_RUN: Final = _list(frozenset[StrEnum](RUNS.terminal))
_VERDICTS: Final = _list(tuple(f"job.{status}" for status in JOBS.terminal))
_COMPLETED_OUTCOME: Final = f"'{Outcome.COMPLETED}'"
_POLICY: Final = ", ".join(f"('{name}', {policy.persist})" for name, policy in sorted(EVENT_POLICY.items()))
_LANES: Final = ", ".join(f"('{lane}')" for lane in Lane)

INVARIANTS: Final = (
    Invariant(
        "I1.one_attempt",
        "a job has at most one open attempt",
        """
        SELECT job_id AS offender FROM job_attempts WHERE ended_at IS NULL
        GROUP BY job_id HAVING count(*) > 1
        """,
    ),
    Invariant(
        "I1.one_owner",
        "a job is in progress exactly while its newest attempt is open",
        f"""
        SELECT j.id AS offender FROM jobs j
        LEFT JOIN job_attempts a ON a.job_id = j.id AND a.attempt = j.attempt AND a.ended_at IS NULL
        WHERE (j.status = {IN_PROGRESS}) <> (a.job_id IS NOT NULL)
        """,
    ),
    Invariant(
        "I2.one_verdict_one_event",
        "a final job has one event, that of its state; any other job has none",
        f"""
        SELECT j.id AS offender FROM jobs j
        LEFT JOIN outbox o ON o.subject = '{names.JOB_PREFIX}' || j.id AND o.type IN ({_VERDICTS})
        WHERE j.completed_at IS NULL OR j.completed_at > clock_timestamp() - interval '{OUTBOX_DAYS} days'
        GROUP BY j.id, j.status
        HAVING count(o.id) <> (j.status IN ({_FINAL_JOB}))::int OR min(o.type) <> 'job.' || j.status
        """,
    ),
    Invariant(
        "I3.no_double_merge",
        "at most one attempt of a job is completed",
        f"""
        SELECT job_id AS offender FROM job_attempts WHERE outcome = {_COMPLETED_OUTCOME}
        GROUP BY job_id HAVING count(*) > 1
        """,
    ),
    Invariant(
        "I3.merged_is_completed",
        "a job is completed exactly if its newest attempt is",
        f"""
        SELECT j.id AS offender FROM jobs j
        WHERE (j.status = {COMPLETED}) <> EXISTS (
          SELECT FROM job_attempts a
          WHERE a.job_id = j.id AND a.attempt = j.attempt AND a.outcome = {_COMPLETED_OUTCOME})
        """,
    ),
    Invariant(
        "I4.blame",
        f"failures are the charged attempts, at most {MAX_FAILURES}",
        f"""
        SELECT j.id AS offender FROM jobs j
        LEFT JOIN job_attempts a ON a.job_id = j.id AND a.charged
        GROUP BY j.id, j.failures
        HAVING j.failures > {MAX_FAILURES} OR j.failures <> count(a.job_id)
        """,
    ),
    Invariant(
        "I5.closed_runs_have_no_live_jobs",
        "no job of a closed run is live, but those that its cancel has yet to reach",
        f"""
        SELECT j.id AS offender FROM job_histories h JOIN jobs j ON j.run_id = h.id
        WHERE h.closed_at IS NOT NULL AND j.status NOT IN ({_FINAL_JOB}) AND NOT EXISTS (
          SELECT FROM operations o WHERE o.action = '{Action.RUN_CANCEL}' AND o.finished_at IS NULL
            AND o.filter ->> 'run_id' = h.id::text)
        """,
    ),
    Invariant(
        "I5.cancels_end",
        "every cancel of many jobs has reached all of them",
        "SELECT id AS offender FROM operations WHERE finished_at IS NULL",
        When.REST,
    ),
    Invariant(
        "I5.closed_runs_have_no_open_steps",
        "every step of a closed run is closed",
        f"""
        SELECT s.run_id || '/' || s.step_id AS offender
        FROM job_histories h JOIN run_steps s ON s.run_id = h.id
        WHERE h.status IN ({_FINAL_RUN}) AND s.status NOT IN ({_FINAL_STEP})
        """,
    ),
    Invariant(
        "I5.runs_close",
        "every run is closed, but those that wait for a person",
        "SELECT id AS offender FROM job_histories WHERE closed_at IS NULL AND blocked_reason IS NULL",
        When.REST,
    ),
    Invariant(
        "I6.cause_before_effect",
        "no job is claimed before the steps that its own step needs are closed",
        """
        SELECT a.job_id AS offender FROM job_attempts a
        JOIN jobs j ON j.id = a.job_id
        JOIN run_needs n ON n.run_id = j.run_id AND n.step_id = j.step_id
        JOIN run_steps u ON u.run_id = n.run_id AND u.step_id = n.needs
        WHERE u.closed_at IS NULL OR a.claimed_at < u.closed_at
        """,
    ),
    Invariant(
        "I6.subjects_keep_their_order",
        "events of one subject are on the bus in the order of their causes",
        """
        SELECT id AS offender FROM (
          SELECT id, bus_seq, lag(id) OVER same AS earlier, lag(bus_seq) OVER same AS earlier_seq
          FROM outbox WINDOW same AS (PARTITION BY subject ORDER BY id)
        ) AS o
        WHERE earlier IS NOT NULL AND bus_seq IS NOT NULL AND (earlier_seq IS NULL OR earlier_seq >= bus_seq)
        """,
    ),
    Invariant(
        "I7.steps_of_one",
        "the numbers of the bus have no hole and none is given twice",
        """
        SELECT min(bus_seq) || '..' || max(bus_seq) AS offender FROM outbox
        WHERE bus_seq > (SELECT pruned_seq FROM bus_state)
        HAVING max(bus_seq) - min(bus_seq) + 1 <> count(bus_seq) OR count(DISTINCT bus_seq) <> count(bus_seq)
        """,
    ),
    Invariant(
        "I7.all_published",
        "every event is published",
        """
        SELECT id AS offender FROM outbox
        WHERE bus_seq IS NULL OR bus_seq > (SELECT published_seq FROM bus_state)
        """,
        When.REST,
    ),
    Invariant(
        "I8.lanes_are_done",
        "every lane has handled the newest event",
        f"""
        SELECT lane AS offender
        FROM (VALUES {_LANES}) AS known (lane)
        LEFT JOIN lane_checkpoints c USING (lane)
        CROSS JOIN (SELECT max(bus_seq) AS newest FROM outbox) AS bus
        WHERE c.last_seq IS DISTINCT FROM newest AND newest IS NOT NULL
        """,
        When.REST,
    ),
    Invariant(
        "I8.audit_is_complete",
        "every event whose policy says so is in the audit trail",
        f"""
        SELECT o.event_id AS offender FROM outbox o
        JOIN (VALUES {_POLICY}) AS event_policy (type, persist) USING (type)
        LEFT JOIN audit_events a ON a.event_id = o.event_id
        WHERE event_policy.persist AND a.event_id IS NULL
          AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.lane = 'audit' AND d.event_id = o.event_id)
        """,
        When.REST,
    ),
    Invariant(
        "I8.audit_keeps_order",
        "the audit trail is in the order of the bus, but for what was redriven",
        """
        SELECT event_id AS offender FROM (
          SELECT event_id, bus_seq, lag(bus_seq) OVER (ORDER BY audit_id) AS earlier FROM audit_events e
          WHERE NOT EXISTS (SELECT FROM dead_letters d WHERE d.lane = 'audit' AND d.event_id = e.event_id)
        ) AS a
        WHERE earlier >= bus_seq
        """,
    ),
    Invariant(
        "I8.deliveries_have_an_endpoint",
        "what is still to be delivered has an endpoint that is there and switched on",
        """
        SELECT d.id AS offender FROM deliveries d
        JOIN integrations i ON i.id = d.integration_id
        WHERE d.state = 'pending' AND (i.status <> 'active' OR i.deleted_at IS NOT NULL)
        """,
    ),
    Invariant(
        "I9.workspace",
        "no worker and no target of one workspace serves a job of another",
        """
        SELECT a.job_id AS offender FROM job_attempts a
        JOIN jobs j ON j.id = a.job_id
        JOIN workers w ON w.id = a.worker_id
        LEFT JOIN targets t ON t.id = j.target_id
        WHERE (w.scope = 'workspace' AND w.workspace_id <> j.workspace_id) OR t.workspace_id <> j.workspace_id
        """,
    ),
    Invariant(
        "I9.network",
        "a worker takes jobs of its own network only, which until they end is that of their target",
        f"""
        SELECT a.job_id AS offender FROM job_attempts a
        JOIN jobs j ON j.id = a.job_id AND j.attempt = a.attempt AND j.status IN ({IN_PROGRESS}, {COMPLETED})
        JOIN workers w ON w.id = a.worker_id AND w.deleted_at IS NULL
        WHERE j.network_id IS DISTINCT FROM w.network_id AND a.claim_key <> '{REMERGE_KEY}'
        UNION ALL
        SELECT j.id FROM jobs j
        JOIN targets t ON t.id = j.target_id AND t.network_id IS DISTINCT FROM j.network_id
        WHERE j.completed_at IS NULL AND t.deleted_at IS NULL
        """,
    ),
    Invariant(
        "I9.shared",
        "a shared worker serves only workspaces that allow it",
        """
        SELECT a.job_id AS offender FROM job_attempts a
        JOIN workers w ON w.id = a.worker_id
        JOIN workspaces s ON s.id = a.workspace_id
        WHERE w.scope = 'shared' AND NOT s.allow_shared
        """,
    ),
    Invariant(
        "I9.inside",
        "a shared worker takes no job at an address that only own workers may contact",
        """
        SELECT a.job_id AS offender FROM job_attempts a
        JOIN jobs j ON j.id = a.job_id AND j.own_only
        JOIN workers w ON w.id = a.worker_id
        WHERE w.scope = 'shared'
        """,
    ),
    Invariant(
        "I9.projects",
        "an asset is only in projects of its own workspace, and in none that is deleted",
        """
        SELECT m.asset_id AS offender FROM project_assets m JOIN projects p ON p.id = m.project_id
        WHERE p.deleted_at IS NOT NULL OR p.workspace_id <> m.workspace_id
        """,
    ),
    Invariant(
        "I9.tools",
        "a step, profile or connector uses a built-in tool or one of its own workspace",
        """
        SELECT used.offender FROM (
          SELECT workspace_id, tool_id, run_id || '/' || step_id AS offender FROM run_steps
          UNION ALL SELECT workspace_id, tool_id, id::text FROM tool_profiles
          UNION ALL SELECT workspace_id, tool_id, id::text FROM connectors
        ) AS used
        JOIN tools t ON t.id = used.tool_id
        WHERE t.workspace_id IS NOT NULL AND t.workspace_id IS DISTINCT FROM used.workspace_id
        """,
    ),
)
"""All promises that the database alone can show, in the order of their numbers."""

_BUS: Final = "I7.stream_is_the_outbox"
_PENDING: Final = "I8.nothing_pending"
_LETTERS: Final = "I8.dead_letters"


async def check(
    conn: Connection, redis: Redis | None, *, at_rest: bool, dead_letters: int = 0
) -> list[Violation]:
    """Checks every invariant that can be checked now; an empty list means that all hold.

    Reads only. `at_rest` says that nothing is under way and adds those for rest; with `redis` also those of
    the stream, where `dead_letters` entries are expected on the dead-letter streams.
    """
    found: list[Violation] = []
    for invariant in INVARIANTS:
        if at_rest or invariant.when is When.ALWAYS:
            found += await _check_one(conn, invariant)
    if at_rest and redis is not None:
        found += await check_stream(conn, redis, dead_letters=dead_letters)
    return found


async def check_stream(conn: Connection, redis: Redis, *, dead_letters: int = 0) -> list[Violation]:
    """The half of I7 and I8 that Redis shows; all of it holds at rest only."""
    newest: int | None = await conn.fetchval("SELECT max(bus_seq) FROM outbox")
    found = await _check_bus(redis, newest)
    pending = [lane for lane in Lane if newest is not None and await _is_pending(redis, lane)]
    if pending:
        found.append(_violation(_PENDING, "no lane has an entry that it did not acknowledge", pending))
    keys = {key: await redis.xlen(key) async for key in redis.scan_iter(match=f"{names.DLQ_PREFIX}*")}
    if sum(keys.values()) != dead_letters:
        sentence = f"the dead-letter streams hold {dead_letters} entries"
        found.append(_violation(_LETTERS, sentence, [f"{_text(key)}: {size}" for key, size in keys.items()]))
    return found


async def _check_one(conn: Connection, invariant: Invariant) -> list[Violation]:
    rows = await conn.fetch(
        f"SELECT offender::text, count(*) OVER () AS total FROM ({invariant.sql}) AS broken LIMIT {SAMPLE}"
    )
    if not rows:
        return []
    sample = tuple(row["offender"] for row in rows)
    return [Violation(invariant.name, invariant.sentence, rows[0]["total"], sample)]


async def _check_bus(redis: Redis, newest: int | None) -> list[Violation]:
    offenders: list[str] = []
    last: int | None = None
    async for entry_id, sequence in _walk(redis):
        if sequence is None or (last is not None and sequence != last + 1):
            offenders.append(f"{entry_id}: {last} before {sequence}")
        last = sequence
    if newest is not None and last != newest:
        offenders.append(f"newest is {last}, in the outbox {newest}")
    sentence = "the stream goes in steps of exactly one and ends where the outbox ends"
    return [_violation(_BUS, sentence, offenders)] if offenders else []


async def _walk(redis: Redis) -> AsyncIterator[tuple[str, int | None]]:
    """Id and number of every entry of the bus, oldest first."""
    after = "-"
    while True:
        reply = await redis.xrange(names.EVENT_STREAM, after, "+", count=_PAGE)
        # the client's types cover all protocols; this is the shape of both
        page = cast("list[tuple[bytes | str, Mapping[bytes | str, bytes | str]]]", reply)
        for entry_id, fields in page:
            sequence = _text(fields.get(b"sequence", fields.get("sequence", "")))
            yield _text(entry_id), int(sequence) if sequence.isdigit() else None
        if not page:
            return
        after = f"({_text(page[-1][0])}"


async def _is_pending(redis: Redis, lane: Lane) -> bool:
    try:
        reply = await redis.xpending(names.EVENT_STREAM, lane.value)
    except ResponseError as error:
        if not str(error).startswith("NOGROUP"):
            raise
        return True  # a lane without a group reads nothing
    # the client's types cover all protocols; this is the shape of both
    return cast("Mapping[str, object]", reply)["pending"] != 0


def _violation(name: str, sentence: str, offenders: list[str] | list[Lane]) -> Violation:
    return Violation(name, sentence, len(offenders), tuple(str(each) for each in offenders[:SAMPLE]))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
