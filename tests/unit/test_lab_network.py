"""Where a lab may stand, and what is said when it cannot."""

import errno

import pytest

from runlane.errors import Invalid
from runlane.lab.network import bind_failure, parse_base


def test_machines_are_numbered_from_the_base() -> None:
    assert parse_base("127.8.0.0/24").address(10) == "127.8.0.10"


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/24",
        "192.0.2.0/24",
        "0.0.0.0/0",
        "126.0.0.0/7",
        "127.7.0.0/27",
        "127.7.0.5/24",
        "::1/128",
        "lab",
        "",
    ],
)
def test_base_that_is_not_loopback_or_too_small_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_base(text)

    assert refused.value.code == "lab.base"


def test_missing_address_names_the_command_that_adds_it() -> None:
    refused = bind_failure(OSError(errno.EADDRNOTAVAIL, "no"), "127.7.0.2:80", ["127.7.0.1", "127.7.0.2"])

    assert "sudo ifconfig lo0 alias 127.7.0.1 up; sudo ifconfig lo0 alias 127.7.0.2 up" in refused.detail


def test_taken_port_names_the_place_and_the_way_out() -> None:
    refused = bind_failure(OSError(errno.EADDRINUSE, "in use"), "127.7.0.2:18080", [])

    assert "127.7.0.2:18080" in refused.detail
    assert "--base" in refused.detail


def test_other_refusal_is_told_as_it_is() -> None:
    assert "Permission denied" in bind_failure(OSError(errno.EACCES, "Permission denied"), "x:1", []).detail
