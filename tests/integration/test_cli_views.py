"""What an operator types to watch runs and jobs, against a real API."""

from pathlib import Path

import pytest

from runlane.cli.errors import ExitCode
from runlane.db.pool import Pool
from tests.integration.api_world import ApiWorld, served
from tests.integration.dispatched_run import dispatched_run
from tests.integration.scan_host import Done, enrol
from tests.integration.test_cli_api import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.breaks_invariants]  # rows are changed without their events


async def test_operator_watches_a_run_from_plan_to_raw_result(
    world: ApiWorld, pool: Pool, tmp_path: Path
) -> None:
    async with world.caller("ours") as caller, served(world.app) as url:
        terminal = Terminal(url, caller.key, tmp_path, world.settings)
        await terminal.run("target", "add", "lab.test")
        plan = await terminal.run("run", "plan", "--target", "lab.test", "--strict")
        run = await dispatched_run(pool, caller.workspace_id)
        why = await terminal.run("job", "why", "@last")
        host = await enrol(pool, caller.workspace_id)
        (job,) = (await host.claim(run.dispatches[0], "key", 1)).jobs
        await host.stage(await host.delivery(run.dispatches[0], [(job, Done(records=[{"n": 1}]))]))

        run_why = await terminal.run("run", "why", "@last", "--json")
        attempts = await terminal.run("job", "attempts", str(job.job_id))
        errors = await terminal.run("job", "errors", str(job.job_id), "--json")
        raw = await terminal.run("job", "raw", str(job.job_id), "-o", "result.ndjson")
        again = await terminal.run("job", "raw", str(job.job_id), "-o", "result.ndjson")
        progress = await terminal.run("run", "progress", "@last")
        await pool.execute("UPDATE jobs SET status = 'cancelled', completed_at = clock_timestamp()")
        tail = await terminal.run("job", "tail", str(job.job_id), "--json")
        listed = await terminal.run("run", "list", "--name", "TEST", "--since", "1h", "--json")

    assert (plan.code, why.code) == (ExitCode.CHECK_FAILED, 0)
    assert "no live worker for the tool set probe" in plan.out
    assert "because: no live worker for the tool set probe" in why.out
    assert '"groups":[]' in run_why.out  # its one job is in progress
    assert "test host" in attempts.out
    assert errors.json == {"items": []}
    assert (raw.code, again.code) == (0, ExitCode.USAGE)
    written = (tmp_path / "result.ndjson").read_text()
    assert written == f'{{"job":"{job.job_id}","attempt":1,"records":[{{"n":1}}]}}'
    assert "left: unknown: only: no live worker for the tool set probe" in progress.out
    assert tail.out.splitlines()[-1] == '{"event":"end","status":"cancelled"}'
    assert listed.out.count('"id":') == 1
