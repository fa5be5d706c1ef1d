"""The document's literal rule, which strict mode applies besides the precise one."""

from collections.abc import Iterator

import pytest

from runlane.events import Redaction, scrub, scrub_text, use_redaction

RUN = "01a22ba7-d81b-770c-84aa-4d540b75ff15"
HEX = "af09" * 16


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    use_redaction(Redaction.STRICT)
    yield
    use_redaction(Redaction.PRECISE)


@pytest.mark.parametrize(
    "name",
    [
        "secret", "token", "password", "credential", "apiKey", "private.key", "access key", "authorization",
        "bearer", "passphrase", "cert", "ssh-key", "certificate", "tokenizer", "concerts", "apiKeyId",
    ],
)  # fmt: skip
def test_a_name_with_a_word_of_the_document_in_it_is_dropped(name: str) -> None:
    assert scrub({name: "x", "kept": {name: 1, "n": 2}}) == {"kept": {"n": 2}}


@pytest.mark.parametrize(
    "value",
    ["sk-1", "AKIA1", "text, then -----BEGIN CERTIFICATE-----", HEX, "=" * 40, "0" * 45, "a-long-name-" * 4],
)
def test_every_long_text_without_a_delimiter_is_masked_under_any_name(value: str) -> None:
    assert scrub({"sha256": value}) == {"sha256": "***"}
    assert "***" in scrub_text(f"digest: {value}")


@pytest.mark.parametrize("value", [RUN, f"run/{RUN}/ports/3", "a" * 39, "a sentence", "task-risk-desk"])
def test_own_ids_and_ordinary_text_survive(value: str) -> None:
    assert scrub({"v": value}) == {"v": value}
    assert scrub_text(value) == value


def test_the_precise_rule_holds_as_well() -> None:
    assert scrub({"v": "postgres://bob:pw@db/x", "Set-Cookie": "a"}) == {"v": "postgres://bob:***@db/x"}
