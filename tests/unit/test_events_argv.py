"""Redaction of argument lists."""

import re

import pytest

from runlane.events import scrub_argv
from runlane.events.literal import CREDENTIAL_WORDS
from runlane.scan.argv import ProbeArgv
from runlane.scan.wire import ClaimedJob

TOKEN = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2Vj"


@pytest.mark.parametrize(
    ("argv", "kept"),
    [
        (["nmap", "-p", "80,443", "--", "lab.test"], ["nmap", "-p", "80,443", "--", "lab.test"]),
        (["t", "--api-key", "abc", "-v"], ["t", "--api-key", "***", "-v"]),
        (["t", "--api-key", "--verbose"], ["t", "--api-key", "--verbose"]),
        (["t", "--password=abc"], ["t", "--password=***"]),
        (["t", "-H", "Authorization: Basic YTpi"], ["t", "-H", "Authorization: ***"]),
        (["t", "-H", "Cookie: session=1"], ["t", "-H", "Cookie: ***"]),
        (["t", "-u", "https://me:pw@lab.test/a"], ["t", "-u", "https://***@lab.test/a"]),
        (["t", TOKEN], ["t", "***"]),
        (["t", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"], ["t", "***"]),
        (["t", "-u", "https://lab.test/?sig=abc"], ["t", "-u", "https://lab.test/?sig=***"]),
        (["t", "--public-key", "abc", "--max-tokens=3"], ["t", "--public-key", "abc", "--max-tokens=3"]),
        (["m", '{"options":{"password":"x","depth":2}}'], ["m", '{"options":{"depth":2}}']),
        (["m", r'{"options":{"pass\u0077ord":"x","depth":2}}'], ["m", '{"options":{"depth":2}}']),
        (["m", "{no json"], ["m", "{no json"]),
    ],
)
def test_credentials_of_an_argument_list_are_masked_wherever_they_stand(
    argv: list[str], kept: list[str]
) -> None:
    assert scrub_argv(argv) == kept
    assert scrub_argv(kept) == kept


@pytest.mark.parametrize("word", CREDENTIAL_WORDS)
def test_every_name_of_a_credential_is_masked(word: str) -> None:
    name = re.sub(r"\[.*?\]\?", "_", word)  # one of the texts that the pattern matches

    assert scrub_argv([f"--{name.upper()}=x", "v"]) == [f"--{name.upper()}=***", "v"]


def test_long_option_of_a_probe_is_told_by_its_size() -> None:
    options = {"ports": "80", "wordlist": ["word"] * 1_000}

    module, line = ProbeArgv("dnsprobe", options).of(ClaimedJob("j", 2, {"host": "lab.test"}))

    assert module == "runlane.probes.dnsprobe"
    assert line == (
        '{"job":"j","target":{"host":"lab.test"},'
        '"options":{"attempt":2,"ports":"80","wordlist":"[7001 bytes]"}}'
    )
