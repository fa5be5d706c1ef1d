"""Headers of a step reach foreign programs in a file: arguments are there for everybody to read."""

import json
from types import ModuleType

import pytest

from runlane.tools.adapters import httpx, katana, nuclei
from runlane.tools.adapters.adapter import ToolJob, Workplace
from runlane.tools.adapters.options import BadOption, Options, faults, read_options

JOB = ToolJob("job", "127.0.0.1", "127.0.0.1", 80, "http://127.0.0.1:80/")
HEADERS = {"Authorization": "Bearer q7Zw", "X-Scan": 'a "b"'}


@pytest.mark.parametrize(("tool", "flag"), [(httpx, "header"), (nuclei, "header"), (katana, "headers")])
def test_headers_are_in_a_private_file_and_not_among_the_arguments(tool: ModuleType, flag: str) -> None:
    command = tool.command([JOB], Options(values={"headers": HEADERS}), Workplace("/private"))
    plain = tool.command([JOB], Options(), Workplace("/private"))

    (path,) = command.files
    assert command.argv[command.argv.index("-config") + 1] == f"/private/{path}"
    assert json.loads(command.files[path]) == {flag: ["Authorization: Bearer q7Zw", 'X-Scan: a "b"']}
    assert "q7Zw" not in " ".join(command.argv) + repr(command)
    assert ("-config" in plain.argv, dict(plain.files)) == (False, {})


def test_headers_may_refer_to_secrets_until_a_host_reads_them() -> None:
    referring = {"headers": {"Authorization": {"secret_ref": "shop"}}}

    assert faults(nuclei.ADAPTER.schema, referring) == {}
    assert "headers" in faults(nuclei.ADAPTER.schema, {"headers": {"Host": "x"}})
    with pytest.raises(BadOption, match="headers"):
        read_options(nuclei.ADAPTER.schema, {"headers": {"X": "a\nb"}})
