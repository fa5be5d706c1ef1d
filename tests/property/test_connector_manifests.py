"""Manifests under arbitrary changes: either every fault is named, or what is read can be read again alike."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from runlane.connectors import Manifest, read_manifest
from runlane.errors import Invalid
from runlane.tools.adapters.adapter import Each, ToolJob, Workplace
from runlane.tools.adapters.jobs import BadTarget
from runlane.tools.adapters.options import read_options
from tests.unit.test_connectors import MANIFEST

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
PLACES = st.sampled_from(
    [
        *((key,) for key in MANIFEST),
        *(("options", name) for name in ("ports", "timing", "banners", "order", "new")),
        *(("options", "timing", key) for key in ("type", "low", "high", "default", "new")),
        *(("limits", name) for name in ("memory_mb", "cpus", "wall_s", "max_batch", "parallelism", "new")),
        ("new",),
    ]
)


def changed(place: tuple[str, ...], value: object) -> dict[str, object]:
    """The manifest with another value at a place."""
    document: dict[str, object] = orjson.loads(orjson.dumps(MANIFEST))
    part = document
    for key in place[:-1]:
        part = part[key]  # type: ignore[assignment]  # an object, by the list of places
    part[place[-1]] = value
    return document


def read(document: object) -> Manifest | Invalid:
    try:
        return read_manifest(document)
    except Invalid as error:
        return error


@given(PLACES, JSON)
def test_manifest_is_read_or_refused_and_never_an_error_of_ours(
    place: tuple[str, ...], value: object
) -> None:
    found = read(changed(place, value))

    if isinstance(found, Manifest):
        assert read_manifest(orjson.loads(orjson.dumps(found.as_json()))) == found
    else:
        assert found.code == "connector.invalid"
        assert found.fields


@given(JSON)
def test_no_document_is_an_error_of_ours(value: object) -> None:
    assert isinstance(read(value), Invalid)


def argv_of(manifest: Manifest, job: ToolJob) -> tuple[str, ...]:
    way = manifest.adapter().way
    assert isinstance(way, Each)
    command, _ = way.stages[0](job, read_options(manifest.schema(), {}), Workplace("/nowhere"))
    return command.argv


@given(
    st.text(max_size=30),
    st.ip_addresses().map(str),
    st.lists(
        st.sampled_from(["{host}", "{address}", "{port}", "{url}", "--x={host}", "-u{url}"]), max_size=6
    ),
    st.text(max_size=30),
)
def test_no_value_of_a_job_becomes_an_option(host: str, address: str, argv: list[str], url: str) -> None:
    manifest = read_manifest(
        {**MANIFEST, "category": "http_probe", "fans_out": "web_services", "output": "records", "argv": argv}
    )

    try:
        found = argv_of(manifest, ToolJob("a", host, address, 80, url))
    except BadTarget:
        assert host.startswith("-") or url.startswith("-")
        return

    assert len(found) == 1 + len(argv)
    for argument, place in zip(found[1:], argv, strict=True):
        assert argument.startswith("-") is place.startswith("-")
