"""Targets as people write them, and their one spelling."""

import pytest

from runlane.errors import Invalid
from runlane.tools.targets import Target, TargetKind, parse_target


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Example.COM.", TargetKind.DOMAIN, "example.com"),
        ("bücher.example", TargetKind.DOMAIN, "xn--bcher-kva.example"),
        ("ｅｘａｍｐｌｅ.com", TargetKind.DOMAIN, "example.com"),
        ("a--b.example", TargetKind.DOMAIN, "a--b.example"),
        ("8.8.8.8", TargetKind.IP, "8.8.8.8"),
        ("8.8.8.8/32", TargetKind.IP, "8.8.8.8"),
        ("::ffff:8.8.8.8", TargetKind.IP, "8.8.8.8"),
        ("2606:4700:0:0::1111", TargetKind.IP, "2606:4700::1111"),
        ("8.8.8.0/24", TargetKind.CIDR, "8.8.8.0/24"),
        ("8.8.8.0/22", TargetKind.CIDR, "8.8.8.0/22"),
    ],
)
def test_target_is_read_in_its_one_spelling(text: str, kind: TargetKind, value: str) -> None:
    assert parse_target(text) == Target(kind, value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "target.empty"),
        ("-oN/x", "target.option"),
        ("--script=x", "target.option"),
        ("a" * 254, "target.too_long"),
        (".".join(["a" * 63] * 4), "target.too_long"),
        ("exa\x00mple.com", "target.characters"),
        ("example.com\n", "target.characters"),
        (" example.com", "target.characters"),
        ("example .com", "target.characters"),
        ("example.com\u2028", "target.characters"),
        ("exam\ud800ple.com", "target.characters"),
        ("http://example.com", "target.url"),
        ("user@example.com", "target.url"),
        ("example.com:80", "target.url"),
        ("example.com/path", "target.url"),
        ("[::1]", "target.url"),
        ("example.com?x", "target.url"),
        ("localhost", "target.domain"),
        ("a" * 64 + ".com", "target.domain"),
        ("-a.example", "target.option"),
        ("a.-b.example", "target.domain"),
        ("a..example", "target.domain"),
        ("_dmarc.example", "target.domain"),
        ("*.example.com", "target.domain"),
        ("127.1", "target.domain"),
        ("0177.0.0.1", "target.domain"),
        ("0x7f.0x1", "target.domain"),
        ("127。0。0。1", "target.domain"),
        ("1.2.3.4.", "target.domain"),
        ("8.8.8.8/255.0.0.0", "target.network"),
        ("8.8.8.0/x", "target.network"),
        ("8.8.8.0/33", "target.network"),
        ("8.8.8.8/24", "target.network"),
        ("8.8.8.0/", "target.network"),
        ("8.8.0.0/21", "target.network_too_large"),
        ("2606:4700::/64", "target.network_too_large"),
        ("169.254.169.254", "target.address_refused"),
        ("10.0.0.1", "target.address_refused"),
        ("127.0.0.1", "target.address_refused"),
        ("::ffff:127.0.0.1", "target.address_refused"),
        ("fe80::1%eth0", "target.url"),
        ("192.168.0.0/24", "target.address_refused"),
    ],
)
def test_anything_else_is_refused_with_a_code(text: str, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_target(text)

    assert refusal.value.code == code
    assert refusal.value.fields == {"target": refusal.value.detail}


def test_allowed_networks_open_private_targets_but_never_metadata() -> None:
    assert parse_target("127.7.0.3", ["127.0.0.0/8"]).value == "127.7.0.3"
    assert parse_target("127.7.0.0/24", ["127.0.0.0/8"]).kind is TargetKind.CIDR
    with pytest.raises(Invalid, match="not a public address"):
        parse_target("169.254.169.254", ["0.0.0.0/0"])
