"""Sweeps without servers: what the schedules ask for, what is old, what an archive is."""

import gzip
import hashlib
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import orjson
import pytest

from runlane.archive import archive_of
from runlane.errors import Defect
from runlane.settings import Settings
from runlane.storage import StoredObject, object_key, older, workspace_of_key
from runlane.sweeps import SWEEPS, Part, Report, Retention
from workflows.sweep_schedules import schedule_of

NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)


def test_every_part_belongs_to_exactly_one_sweep() -> None:
    parts = [part for sweep in SWEEPS.values() for part in sweep.parts]

    assert sorted(parts) == sorted(Part)


def test_periods_are_those_of_the_documents() -> None:
    minutes = {name: sweep.every / timedelta(minutes=1) for name, sweep in SWEEPS.items()}

    assert (minutes["workers"], minutes["stuck"], minutes["stalled"]) == (1, 1, 2)
    assert minutes["jobs"] == minutes["results"] == minutes["audit"] == 24 * 60
    assert Settings.model_validate({}).retention == Retention(180, 30, 90)


@pytest.mark.parametrize("name", SWEEPS)
def test_missed_sweeps_are_made_up_for_by_one(name: str) -> None:
    schedule = schedule_of(SWEEPS[name])

    assert schedule.policy.catchup_window == SWEEPS[name].every
    assert schedule.spec.intervals[0].every == SWEEPS[name].every
    assert not schedule.policy.pause_on_failure


def test_reports_add_up() -> None:
    assert Report(1, 2, 3) + Report(10, 20, 30) == Report(11, 22, 33)


def test_object_whose_age_cannot_be_told_is_never_old() -> None:
    objects = [
        StoredObject("unknown", None),
        StoredObject("old", NOW - timedelta(seconds=1)),
        StoredObject("young", NOW),
    ]

    assert older(objects, NOW) == ["old"]


def test_only_keys_that_we_make_are_those_of_staged_results() -> None:
    workspace_id = uuid4()
    key = object_key(workspace_id, uuid4())

    assert workspace_of_key(key) == workspace_id
    for other in ("", "notes", f"{workspace_id}", f"{key}.bak", f"x/{key}", "doctor/0123", f"{uuid4()}/a/b"):
        assert workspace_of_key(other) is None


def audited(number: int) -> dict[str, object]:
    return {
        "audit_id": number, "workspace_id": UUID(int=1), "event_id": UUID(int=number), "bus_seq": number,
        "type": "job.cancelled", "subject": "job/1", "actor_id": None, "actor_type": None, "outcome": None,
        "severity": "info", "data": {"n": number}, "occurred_at": NOW, "recorded_at": NOW,
    }  # fmt: skip


def test_archive_of_the_same_events_is_the_same_and_its_manifest_describes_it() -> None:
    first, second = archive_of([audited(7), audited(8)]), archive_of([audited(7), audited(8)])

    assert first == second
    lines = gzip.decompress(first.body).splitlines()
    assert [orjson.loads(line)["audit_id"] for line in lines] == [7, 8]
    manifest = orjson.loads(first.manifest)
    assert manifest["sha256"] == hashlib.sha256(first.body).hexdigest()
    assert (manifest["first_id"], manifest["last_id"], manifest["events"]) == (7, 8, 2)
    assert manifest["object"] == first.key
    assert first.key.startswith("2026/12/01/")


def test_empty_archive_is_a_defect() -> None:
    with pytest.raises(Defect):
        archive_of([])
