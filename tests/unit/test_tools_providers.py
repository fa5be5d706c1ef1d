"""Keys of third parties on their way to subfinder: references in options, a private file on the host."""

import json
from pathlib import Path

import pytest

from runlane.jobs import Outcome
from runlane.scan.children import Launcher
from runlane.scan.programs import ProgramHost
from runlane.secret_refs import names_in, resolved
from runlane.tools.adapters import config_faults, subfinder
from runlane.tools.adapters.adapter import ToolJob, Workplace
from runlane.tools.adapters.options import BadOption, Options, read_options
from runlane.tools.providers import provider_file
from tests.unit.program_batches import batch_of, outcomes, run

REFERRING = {
    "shodan": {"secret_ref": "shodan"},
    "censys": [{"secret_ref": "censys"}, {"secret_ref": "spare"}],
}
VALUES = {"shodan": "q7ZwKey", "censys": "id:q7Zw", "spare": "$HOME"}


def test_keys_are_references_until_a_host_writes_them_into_a_private_file() -> None:
    options = read_options(subfinder.ADAPTER.schema, {"providers": resolved(REFERRING, VALUES)})
    command, _ = subfinder.find_names(ToolJob("j", "lab.test"), options, Workplace("/private"))
    plain, _ = subfinder.find_names(ToolJob("j", "lab.test"), Options(), Workplace("/private"))

    (name,) = command.files
    assert config_faults("subfinder", {"providers": REFERRING}) == {}
    assert names_in(REFERRING) == {"shodan", "censys", "spare"}
    assert command.argv[-2:] == ("-provider-config", f"/private/{name}")
    assert json.loads(command.files[name]) == {"shodan": ["q7ZwKey"], "censys": ["id:q7Zw", "$HOME"]}
    assert "q7Zw" not in " ".join(command.argv) + repr(command)
    assert ("-provider-config" in plain.argv, dict(plain.files)) == (False, {})


def test_file_of_keys_is_one_word_in_which_no_variable_is_put_in_place() -> None:
    """The program looks at words that begin with a dollar sign, whatever quotes are around them."""
    (word,) = provider_file(resolved(REFERRING, VALUES)).split()

    assert not word.strip(b'"`').startswith(b"$")


@pytest.mark.parametrize("keys", ["q7ZwKey", ["q7ZwKey"], [{"secret_ref": "a"}, "q7ZwKey"]])
def test_key_that_is_written_out_is_refused_and_not_repeated(keys: object) -> None:
    (fault,) = config_faults("subfinder", {"providers": {"shodan": keys}}).values()

    assert "references to secrets" in fault
    assert "q7Zw" not in fault


@pytest.mark.parametrize(
    "providers", [{}, [], {"Shodan": "k"}, {"a": []}, {"a": ["k"] * 11}, {"a": "two words"}, {"a": {"b": 1}}]
)
def test_keys_of_another_form_are_refused(providers: object) -> None:
    with pytest.raises(BadOption, match="providers"):
        read_options(subfinder.ADAPTER.schema, {"providers": providers})


SUBFINDER = """#!/bin/sh
for file; do :; done
stat -c %a "$file" > WITNESS
cat "$file" >> WITNESS
"""


async def test_file_of_keys_is_for_the_worker_alone_and_gone_after_the_attempt(tmp_path: Path) -> None:
    """A program stands where subfinder would, and tells what it was given."""
    witness = tmp_path / "witness"
    for name, text in (("subfinder", SUBFINDER.replace("WITNESS", str(witness))), ("dnsx", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    paths = {name: str(tmp_path / name) for name in ("subfinder", "dnsx")}
    options = {"providers": {"shodan": "q7ZwKey"}}

    async with Launcher() as launcher:
        host = ProgramHost(launcher, tmp_path / "work", paths)
        members = await run(batch_of(host, subfinder.ADAPTER, "lab", options=options))

    mode, content = witness.read_text().splitlines()
    assert outcomes(members) == {"lab": Outcome.COMPLETED}
    assert (mode, json.loads(content)) == ("600", {"shodan": ["q7ZwKey"]})
    assert list((tmp_path / "work").rglob("*")) == []
    assert "q7Zw" not in repr(members)
