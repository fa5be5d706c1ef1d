"""Rules of projects as people write them."""

import pytest

from runlane.projects import MAX_RULES, Rule, RuleKind, parse_rules


@pytest.mark.parametrize(
    ("kind", "said", "kept"),
    [
        (RuleKind.DOMAIN, "*.Shop.Example.COM.", "shop.example.com"),
        (RuleKind.DOMAIN, "bücher.example", "xn--bcher-kva.example"),
        (RuleKind.CIDR, "192.0.2.7", "192.0.2.7/32"),
        (RuleKind.CIDR, "2001:DB8::/32", "2001:db8::/32"),
        (RuleKind.TARGET, "0190A6F0-0000-7000-8000-000000000001", "0190a6f0-0000-7000-8000-000000000001"),
        (RuleKind.PORT, "0443", "443"),
        (RuleKind.TECHNOLOGY, " Nginx ", "nginx"),
        (RuleKind.SEVERITY, "high", "high"),
        (RuleKind.TAG, "shop", "shop"),
        (RuleKind.GROUP, "Our shops", "Our shops"),
    ],
)
def test_rule_has_one_spelling(kind: RuleKind, said: str, kept: str) -> None:
    assert parse_rules([Rule(kind, said)]) == ({"rules.0.value": Rule(kind, kept)}, {})
    assert parse_rules([Rule(kind, kept)]) == ({"rules.0.value": Rule(kind, kept)}, {})


def test_everything_that_is_wrong_with_rules_is_said_at_once() -> None:
    wrong = [
        Rule(RuleKind.DOMAIN, "not a name"),
        Rule(RuleKind.DOMAIN, "192.0.2.1"),
        Rule(RuleKind.CIDR, "192.0.2.1/24"),
        Rule(RuleKind.CIDR, "example.com"),
        Rule(RuleKind.TARGET, "example.com"),
        Rule(RuleKind.TAG, "Not A Tag"),
        Rule(RuleKind.PORT, "65536"),
        Rule(RuleKind.PORT, "²"),
        Rule(RuleKind.TECHNOLOGY, " "),
        Rule(RuleKind.SEVERITY, "none"),
    ]

    kept, faults = parse_rules([Rule(RuleKind.TAG, "shop"), *wrong])

    assert kept == {"rules.0.value": Rule(RuleKind.TAG, "shop")}
    assert list(faults) == [f"rules.{number}.value" for number in range(1, len(wrong) + 1)]


def test_project_has_at_least_one_rule_and_not_too_many() -> None:
    assert list(parse_rules([])[1]) == ["rules"]
    assert list(parse_rules([Rule(RuleKind.PORT, "1")] * (MAX_RULES + 1))[1]) == ["rules"]
