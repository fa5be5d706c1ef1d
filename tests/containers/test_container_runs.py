"""Jobs in containers of a real engine: what one may do, how it ends, and that nothing of it stays."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import docker
import orjson
import pytest
import pytest_asyncio

from runlane import names
from runlane.containers.engine import Engine
from runlane.jobs import Outcome
from tests.containers.container_jobs import DONE, RECORD, Host, host_on, run, script
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def host(engine: Engine, client: docker.APIClient, busybox: str) -> AsyncIterator[Host]:
    """A host that allows the image of the test connector; nothing of it may be left at the end."""
    made = host_on(engine, client, busybox)
    yield made
    await until(lambda: not made.containers_now())


async def test_job_goes_in_on_stdin_and_records_come_out(host: Host, busybox: str) -> None:
    copy = 'read job; echo "{\\"record\\":{\\"job\\":$job}}"; echo note >&2; echo \'' + DONE + "'"
    members = await run(host.batch(script(busybox, copy, reads_job=True), "j0"))

    member = members["j0"]
    assert (member.outcome, member.complete, member.reachable) == (Outcome.COMPLETED, True, True)
    assert orjson.loads(member.records[0])["job"]["target"]["host"] == "j0.lab.test"
    assert member.argv[:2] == ("/bin/sh", "-c")


async def test_container_has_no_rights_no_network_and_nothing_to_write_but_its_tmp(
    host: Host, busybox: str
) -> None:
    look = """
    say() { echo "{\\"record\\":{\\"name\\":\\"$1\\"}}"; }
    say "$(id -u):$(id -g)"
    say "$(grep -c . /proc/net/route)"
    for right in CapBnd CapEff NoNewPrivs; do
      say "$(grep "^$right:" /proc/self/status | tr -d '\\t ')"
    done
    (echo x > /etc/x) 2>/dev/null || say read-only
    echo x > /tmp/x && say writable
    (dd if=/dev/zero of=/tmp/y bs=1024 count=4096) 2>/dev/null || say bounded
    """
    members = await run(host.batch(script(busybox, f"{look} echo '{DONE}'")))

    said = [orjson.loads(record)["name"] for record in members["j0"].records]
    none = "0" * 16
    assert said == [
        "65534:65534",
        "1",  # the head of an empty table
        f"CapBnd:{none}",
        f"CapEff:{none}",
        "NoNewPrivs:1",
        "read-only",
        "writable",
        "bounded",
    ]


async def test_limits_are_those_of_the_manifest(host: Host, busybox: str, client: docker.APIClient) -> None:
    batch = host.batch(script(busybox, "sleep 600", memory_mb=24, cpus=0.25, pids=5, tmpfs_mb=2))
    running = asyncio.create_task(batch.run())
    await until(host.running_now)

    found = client.inspect_container(host.running_now()[0])
    batch.stop()
    await running

    given = found["HostConfig"]
    mib = 1024 * 1024
    assert (given["Memory"], given["MemorySwap"], given["NanoCpus"], given["PidsLimit"]) == (
        24 * mib,
        24 * mib,
        250_000_000,
        5,
    )
    assert given["NetworkMode"] == "none"
    assert (given["Privileged"], given["CapDrop"], given["ReadonlyRootfs"]) == (False, ["ALL"], True)
    assert given["Binds"] is None
    assert given["RestartPolicy"]["Name"] == "no"
    labels = found["Config"]["Labels"]
    assert labels[names.CONTAINER_JOB] == "j0"
    assert labels[names.CONTAINER_ATTEMPT] == "1"
    assert labels[names.CONTAINER_RUN] == "run-1"
    assert labels[names.CONTAINER_INCARNATION] == "life-1"


async def test_container_out_of_memory_is_reported_as_such(host: Host, busybox: str) -> None:
    hungry = f"echo '{RECORD}'; x=$(yes | head -c 100000000); echo '{DONE}'"
    members = await run(host.batch(script(busybox, hungry)))

    assert members["j0"].outcome is Outcome.TOOL_FAILED
    assert members["j0"].error == "out of memory: the container may use 16 MB"
    assert len(members["j0"].records) == 1


async def test_timeout_keeps_what_was_found_before_it(host: Host, busybox: str) -> None:
    """The end of a scan by its limit threw away what it had streamed."""
    slow = f"echo '{RECORD}'; echo '{RECORD}'; while sleep 0.2; do echo '{{\"tick\":1}}'; done"
    members = await run(host.batch(script(busybox, slow, wall_s=2)))

    assert (members["j0"].outcome, members["j0"].error) == (Outcome.TIMED_OUT, "over the limit of 2 s")
    assert len(members["j0"].records) == 2
    assert not members["j0"].complete


async def test_container_that_says_nothing_is_ended(host: Host, busybox: str) -> None:
    members = await run(host.batch(script(busybox, f"echo '{RECORD}'; sleep 600", silence_s=1)))

    assert (members["j0"].outcome, members["j0"].error) == (Outcome.TIMED_OUT, "the tool gave no life sign")
    assert len(members["j0"].records) == 1


async def test_long_job_is_ended_by_no_other_limit_than_its_own(host: Host, busybox: str) -> None:
    """A timer of the connection ended scans that ran longer than it."""
    closes_early = f"echo '{RECORD}'; echo '{DONE}'; exec >&- 2>&-; sleep 3"
    members = await run(host.batch(script(busybox, closes_early)))

    assert members["j0"].outcome is Outcome.COMPLETED


async def test_container_that_writes_without_end_is_ended(host: Host, busybox: str) -> None:
    members = await run(host.batch(script(busybox, f"yes '{RECORD}'", output_mb=1)))

    assert (members["j0"].outcome, members["j0"].error) == (Outcome.TOOL_FAILED, "the tool wrote too much")
    assert members["j0"].records


async def test_exit_code_and_last_words_are_told(host: Host, busybox: str) -> None:
    members = await run(host.batch(script(busybox, "echo no such host >&2; exit 3")))

    assert members["j0"].outcome is Outcome.TOOL_FAILED
    assert members["j0"].error == "exit code 3: no such host"


async def test_entry_point_that_is_not_in_the_image_fails_with_the_reason(host: Host, busybox: str) -> None:
    absent = replace(script(busybox, ""), entrypoint=("/nothing/here",))
    members = await run(host.batch(absent))

    assert members["j0"].outcome is Outcome.TOOL_FAILED
    assert "/nothing/here" in str(members["j0"].error)


async def test_container_that_does_not_read_its_job_does_not_hang(host: Host, busybox: str) -> None:
    members = await run(host.batch(script(busybox, f"echo '{DONE}'", reads_job=True)))

    assert members["j0"].outcome is Outcome.COMPLETED


async def test_cancelled_job_is_dropped_and_its_container_gone(host: Host, busybox: str) -> None:
    """A cancel aborted the clean-up as well, and the container stayed."""
    batch = host.batch(script(busybox, f"echo '{RECORD}'; sleep 600"), "j0", "j1")
    running = asyncio.create_task(batch.run())
    await until(lambda: len(host.running_now()) == 2)

    assert batch.cancel("j0", 1)

    await until(lambda: len(host.containers_now()) == 1, 10)
    assert [job.job_id for job in batch.open_jobs()] == ["j1"]
    batch.stop()
    await running
    assert batch.take_finished() == []


async def test_batch_that_is_abandoned_leaves_no_container(host: Host, busybox: str) -> None:
    """Whoever waited was cancelled while the container was being made."""
    running = asyncio.create_task(host.batch(script(busybox, "sleep 600")).run())
    await until(host.containers_now)

    running.cancel()

    await until(lambda: running.done() and not host.containers_now())


async def test_containers_never_exceed_the_cap(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    """Twelve containers for a cap of one, because they were counted before they were there."""
    host = host_on(engine, client, busybox, most=1)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(await asyncio.to_thread(host.containers_now)))

    watching = asyncio.create_task(watch())
    jobs = [f"j{number}" for number in range(4)]
    two = (host.batch(script(busybox, f"echo '{DONE}'"), *jobs), host.batch(script(busybox, "exit 1"), *jobs))
    first, second = await asyncio.gather(*(run(batch) for batch in two))

    watching.cancel()
    assert most == 1
    assert {member.outcome for member in first.values()} == {Outcome.COMPLETED}
    assert {member.outcome for member in second.values()} == {Outcome.TOOL_FAILED}
    assert len(first) == len(second) == 4


async def test_job_that_waits_for_a_place_is_cancelled_at_once(
    engine: Engine, client: docker.APIClient, busybox: str
) -> None:
    """A job waited for a container that nobody gave back."""
    host = host_on(engine, client, busybox, most=1)
    holder, waiter = (host.batch(script(busybox, "sleep 600")) for _ in range(2))
    holding, waiting = asyncio.create_task(holder.run()), asyncio.create_task(waiter.run())
    await until(host.running_now)

    waiter.stop()

    await until(waiting.done)
    assert waiter.is_alive
    holder.stop()
    await holding
    await until(lambda: not host.containers_now())


async def test_each_attempt_has_a_container_of_its_own(host: Host, busybox: str) -> None:
    """A container that was used again was taken for another one's, and removed."""
    leaves = f"test -e /tmp/mark && exit 9; echo x > /tmp/mark; hostname >&2; echo '{DONE}'"
    jobs = [f"j{number}" for number in range(6)]
    members = await run(host.batch(script(busybox, leaves), *jobs))

    assert {member.outcome for member in members.values()} == {Outcome.COMPLETED}
    assert sorted(members) == jobs


async def test_container_that_somebody_removes_fails_its_job_only(
    host: Host, busybox: str, client: docker.APIClient
) -> None:
    batch = host.batch(script(busybox, f"echo '{RECORD}'; sleep 600"))
    running = asyncio.create_task(run(batch))
    await until(host.running_now)

    client.remove_container(host.running_now()[0], force=True)

    members = await running
    assert members["j0"].outcome is Outcome.TOOL_FAILED
    assert members["j0"].error == "the container was removed by somebody else"
