"""Workflow definitions: what is accepted, and that every fault is named."""

import pytest

from runlane.definitions import BUILTIN, MAX_OPTIONS_BYTES, MAX_SOURCE_BYTES, parse_definition
from runlane.errors import Invalid


def faults(source: bytes | str | dict[str, object]) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        parse_definition(source)
    assert caught.value.code == "definition.invalid"
    return caught.value.fields or {"": caught.value.detail}


def test_yaml_and_json_give_the_same_definition() -> None:
    text = "name: n\non: request\njobs:\n  a: {run: noop}\n  b: {run: noop, needs: [a], tolerance: 10%}\n"
    steps = '{"a": {"run": "noop"}, "b": {"run": "noop", "needs": ["a"], "tolerance": "10%"}}'
    json = f'{{"name": "n", "jobs": {steps}}}'

    assert parse_definition(text) == parse_definition(json)


def test_a_frozen_definition_reads_back_as_itself() -> None:
    definition = BUILTIN["domain_discovery"]

    assert parse_definition(definition.as_json()) == definition


def test_all_faults_are_reported_at_once() -> None:
    found = faults(
        {
            "name": "",
            "extra": 1,
            "jobs": {"a": {"run": "no-such", "tolerance": "x"}, "B!": {"run": "noop"}, "c": 3},
        }
    )

    assert {"name", "extra", "jobs.a.run", "jobs.a.tolerance", "jobs.B!", "jobs.c"} <= found.keys()


def test_a_circle_of_needs_is_refused_at_each_step_in_it() -> None:
    found = faults(
        {
            "name": "n",
            "jobs": {
                "a": {"run": "noop", "needs": ["b"]},
                "b": {"run": "noop", "needs": ["a"]},
                "c": {"run": "noop"},
            },
        }
    )

    assert found.keys() == {"jobs.a.needs", "jobs.b.needs"}


@pytest.mark.parametrize(
    "source",
    [
        "jobs: &x {a: {run: noop}}\nname: n\ncopy: *x",
        "name: n\nname: m\njobs: {a: {run: noop}}",
        "- 1",
        "{",
        b"\xff\xfe",
        "x" * (MAX_SOURCE_BYTES + 1),
        "name: !!python/object:os.system x\njobs: {}",
    ],
    ids=["alias", "twice", "list", "torn", "not-utf8", "too-long", "python-tag"],
)
def test_hostile_sources_are_refused(source: bytes | str) -> None:
    faults(source)


def test_part_of_a_graph_waits_only_for_what_is_in_it() -> None:
    definition = BUILTIN["domain_discovery"]

    behind = definition.following("ports")
    part = definition.only({"ports", *behind})

    assert behind == {"http", "urls", "findings"}
    assert [(step.step_id, step.needs) for step in part.steps] == [
        ("ports", ()), ("http", ("ports",)), ("urls", ("http",)), ("findings", ("http",)),
    ]  # fmt: skip
    assert parse_definition(part.as_json()) == part


def test_config_is_laid_over_all_steps_and_then_over_one() -> None:
    definition = parse_definition(
        {"name": "n", "jobs": {"a": {"run": "noop", "config": {"x": 1, "y": 1}}, "b": {"run": "noop"}}}
    )

    laid = definition.with_config({"*": {"x": 2}, "b": {"x": 3}})

    assert [dict(step.config) for step in laid.steps] == [{"x": 2, "y": 1}, {"x": 3}]


def test_config_for_a_step_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Invalid):
        BUILTIN["domain_discovery"].with_config({"nope": {}})


def test_options_that_would_be_frozen_on_every_step_are_bounded_together() -> None:
    steps = {f"s{number}": {"run": "noop"} for number in range(100)}
    definition = parse_definition({"name": "n", "jobs": steps})

    definition.with_config({"*": {"text": "x" * (MAX_OPTIONS_BYTES // 101)}})
    with pytest.raises(Invalid) as refusal:
        definition.with_config({"*": {"text": "x" * (MAX_OPTIONS_BYTES // 100)}})

    assert refusal.value.code == "definition.too_large"


SECRETS: dict[str, dict[str, object]] = {
    "password": {"password": "hunter2"},
    "token": {"api_token": ["a", "b"]},
    "number": {"passphrase": 12345},
    "header": {"headers": {"Authorization": "Bearer x", "Accept": "text/html"}},
    "header line": {"headers": ["Accept: text/html", "Cookie: session=1"]},
    "nested": {"login": [{"user": "a"}, {"client_secret": {"value": "x"}}]},
    "private key": {"identity": "-----BEGIN RSA PRIVATE KEY-----"},
    "url": {"proxy": "http://me:hunter2@proxy.test:3128"},
    "reference with more": {"password": {"secret_ref": "db", "value": "hunter2"}},
}


@pytest.mark.parametrize("config", SECRETS.values(), ids=SECRETS)
def test_credential_in_options_is_refused_and_not_repeated(config: dict[str, object]) -> None:
    step: dict[str, object] = {"run": "noop"}
    definition = parse_definition({"name": "n", "jobs": {"a": step}})

    with pytest.raises(Invalid) as in_definition:
        parse_definition({"name": "n", "jobs": {"a": step | {"config": config}}})
    with pytest.raises(Invalid) as in_run:
        definition.with_config({"*": config})

    for refused, start in ((in_definition.value, "jobs.a.config."), (in_run.value, "config.*.")):
        assert refused.code == "definition.inline_secret"
        assert len(refused.fields) == 1
        assert all(path.startswith(start) for path in refused.fields)
        assert not any(secret in str((refused.detail, refused.fields)) for secret in ("hunter2", "Bearer"))


@pytest.mark.parametrize(
    "config",
    [
        {"password": {"secret_ref": "db"}, "headers": {"Authorization": {"secret_ref": "api"}}},
        {"default_logins": True, "password": None, "check_tokens": False},
        {
            "wordlist": ["token", "secret", "sk-docs", "a" * 60],
            "ports": "1-1024",
            "url": "http://a.test:80/x@y",
        },
    ],
)
def test_references_and_words_are_no_credentials(config: dict[str, object]) -> None:
    definition = parse_definition({"name": "n", "jobs": {"a": {"run": "noop", "config": config}}})

    assert definition.with_config({"a": config}).steps[0].config == config


def test_credential_is_named_among_other_faults() -> None:
    found = faults({"name": "n", "jobs": {"a": {"run": "no-such", "config": {"token": "x"}}}})

    assert found.keys() == {"jobs.a.run", "jobs.a.config.token"}


def test_options_of_any_depth_are_looked_through() -> None:
    config: dict[str, object] = {"token": "x"}
    for _ in range(5_000):
        config = {"a": config}

    with pytest.raises(Invalid) as refused:
        parse_definition({"name": "n", "jobs": {"a": {"run": "noop", "config": config}}})

    assert refused.value.code == "definition.inline_secret"


def test_options_that_are_nested_too_deep_are_a_fault() -> None:
    definition = parse_definition({"name": "n", "jobs": {"a": {"run": "noop"}}})
    config: dict[str, object] = {}
    for _ in range(400):
        config = {"a": config}

    with pytest.raises(Invalid) as refused:
        definition.with_config({"a": config})

    assert refused.value.fields.keys() == {"config.a"}


@pytest.mark.parametrize(
    "text",
    ["? [a]\n: b\n", "? {a: b}\n: c\n", "name: &x a\njobs: *x\n", "a: !!set {b}\n", "a: !!binary aGk=\n"],
)
def test_yaml_that_is_no_plain_object_is_refused_not_an_error_of_ours(text: str) -> None:
    assert faults(text)


def test_dates_in_yaml_are_texts_and_keys_are_too() -> None:
    definition = parse_definition("name: 2026-12-01\njobs:\n  1: {run: noop}\n")

    assert (definition.name, definition.steps[0].step_id) == ("2026-12-01", "1")
