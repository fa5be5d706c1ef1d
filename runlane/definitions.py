"""Workflow definitions: the step graph that a run is started from.

Form: `{name, on?, jobs: {id: {name?, run, needs?, config?, config_profile?, tolerance?}}}` as JSON or YAML.
All faults are reported at once, each with its path, so that a person edits once.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, cast

import orjson

from runlane.connectors import Connector
from runlane.documents import Unreadable, load_document
from runlane.errors import Invalid
from runlane.events.scrub import is_credential_name
from runlane.secret_refs import is_reference
from runlane.tools import TOOLS
from runlane.tools.adapters import config_faults
from runlane.tools.adapters.options import faults as schema_faults
from runlane.triggers import Trigger, parse_triggers

MAX_SOURCE_BYTES: Final = 64 * 1024
MAX_OPTIONS_BYTES: Final = 256 * 1024
"""JSON of the options of all steps of a run: they are frozen on its rows and travel with each claim."""

MAX_STEPS: Final = 100
CREDENTIAL_FAULT: Final = (
    "a credential is not written into options; refer to a secret: {secret_ref: its name}"
)
"""The fault of an option that holds one: options are frozen on rows, shown to readers and sent to hosts."""

_MAX_PATH: Final = 300
"""Characters of the place of a fault: options may be nested thousands deep."""

_HEADER: Final = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s*:\s*\S")
_WRITTEN_OUT: Final = re.compile(r"-----BEGIN |://[^/\s@:]*:[^/\s@]+@")
"""A private key, or a URL with a password."""

_STEP_ID: Final = re.compile(r"[a-z0-9_-]{1,64}\Z")
_TOLERANCE: Final = re.compile(r"(\d{1,9}|(100|\d{1,2})(\.\d{1,4})?%)\Z")
_NO_CONNECTORS: Final[Mapping[str, Connector]] = MappingProxyType({})
_TOP_KEYS: Final = frozenset({"name", "on", "jobs"})
_STEP_KEYS: Final = frozenset({"name", "run", "needs", "config", "config_profile", "tolerance"})


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step: a tool run over everything in its scope."""

    step_id: str
    name: str
    tool_id: str
    needs: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    config_profile: str | None = None
    tolerance: str | None = None
    connector: Connector | None = None
    """The tool's, if it is one that comes as an image."""

    @property
    def tool_name(self) -> str:
        """The tool as the step names it."""
        return self.tool_id if self.connector is None else self.connector.manifest.slug

    def config_faults(self) -> dict[str, str]:
        """What is wrong with its options, by option."""
        return _unfit(self.tool_id, self.connector, self.config)

    def takes_option(self, name: str) -> bool:
        """Whether an option that was given for every step is one of its tool's."""
        return not _unfit(self.tool_id, self.connector, {name: None})


@dataclass(frozen=True, slots=True)
class Definition:
    """A validated definition: steps in the order in which they were written, free of cycles."""

    name: str
    steps: tuple[StepDefinition, ...]
    on: tuple[Trigger, ...] = ()
    """Events that start a run of it, once it is saved."""

    def as_json(self) -> dict[str, object]:
        """The form that is saved, and frozen on the row of a run."""
        on = {"on": [trigger.as_json() for trigger in self.on]} if self.on else {}
        return {"name": self.name, **on, "jobs": {step.step_id: _step_json(step) for step in self.steps}}

    def with_config(self, config: Mapping[str, Mapping[str, object]]) -> "Definition":
        """The same graph with options laid over the steps' own; `*` is laid over every step that takes them.

        Raises:
            Invalid: a name is neither `*` nor a step, or an option is not one of the step's tool
                (`definition.invalid`); an option holds a credential (`definition.inline_secret`); or the
                options are too large (`definition.too_large`).
        """
        if secrets := dict.fromkeys(_inline_secrets(config, "config"), CREDENTIAL_FAULT):
            raise _inline_secret(secrets)
        known = {step.step_id for step in self.steps}
        unknown = {f"config.{name}": "no such step" for name in config if name != "*" and name not in known}
        if unknown:
            raise Invalid("the config names unknown steps", code="definition.invalid", fields=unknown)
        steps = [replace(step, config=_laid_over(step, config)) for step in self.steps]
        faults = {
            f"config.{step.step_id}.{name[:64]}": fault
            for step in steps
            for name, fault in step.config_faults().items()
        }
        if faults:
            raise Invalid("the config does not fit the tools", code="definition.invalid", fields=faults)
        return Definition(self.name, tuple(_bounded(steps)))

    def with_profiles(self, options: Mapping[tuple[str, str], Mapping[str, object]]) -> "Definition":
        """The same graph with the options of each step's profile, found by tool and name, under its own.

        The profile is not named any more: what the run began with is all in its options.

        Raises:
            Invalid: the options are too large together (`definition.too_large`).
        """
        steps = [
            step
            if step.config_profile is None
            else replace(
                step,
                config={**options[step.tool_id, step.config_profile], **step.config},
                config_profile=None,
            )
            for step in self.steps
        ]
        return Definition(self.name, tuple(_bounded(steps)), self.on)

    def following(self, step_id: str) -> frozenset[str]:
        """Steps that need this one, directly or through others."""
        found = {step_id}
        while more := {s.step_id for s in self.steps if found & set(s.needs)} - found:
            found |= more
        return frozenset(found - {step_id})

    def only(self, step_ids: Collection[str]) -> "Definition":
        """The same graph without the other steps: what needed one of them waits for it no more."""
        kept = (step for step in self.steps if step.step_id in step_ids)
        steps = (replace(s, needs=tuple(need for need in s.needs if need in step_ids)) for s in kept)
        return Definition(self.name, tuple(steps))


def _laid_over(step: StepDefinition, config: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    shared = {name: value for name, value in config.get("*", {}).items() if step.takes_option(name)}
    return {**step.config, **shared, **config.get(step.step_id, {})}


def _unfit(tool_id: str, connector: Connector | None, config: Mapping[str, object]) -> dict[str, str]:
    if connector is None:
        return config_faults(tool_id, config)
    return schema_faults(connector.manifest.schema(), config)


def option_faults(
    tool_id: str, options: Mapping[str, object], connector: Connector | None = None
) -> dict[str, str]:
    """What is wrong with options of a tool, by their path; as in a step of a definition."""
    inline = dict.fromkeys(_inline_secrets(options, "options"), CREDENTIAL_FAULT)
    unfit = _unfit(tool_id, connector, options)
    return {f"options.{name[:64]}": fault for name, fault in unfit.items()} | inline


def foreign_tools(document: Mapping[str, object]) -> frozenset[str]:
    """Names in a document that has not been read yet which may be those of connectors."""
    jobs = document.get("jobs")
    steps = list(jobs.values())[:MAX_STEPS] if isinstance(jobs, Mapping) else []
    tools = {step.get("run") for step in steps if isinstance(step, Mapping)}
    return frozenset(tool for tool in tools if isinstance(tool, str) and tool not in TOOLS)


def parse_definition(
    source: bytes | str | Mapping[str, object], connectors: Mapping[str, Connector] = _NO_CONNECTORS
) -> Definition:
    """Reads and validates a definition; `connectors` are those that a step may name, by their slugs.

    Raises:
        Invalid: code `definition.invalid`, with one entry in `fields` per fault; `definition.inline_secret`
            if all of them are credentials in options.
    """
    document = load_definition(source)
    faults: dict[str, str] = {}
    name = document.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 100:
        faults["name"] = "a text of 1 to 100 characters is required"
    triggers = parse_triggers(document.get("on", []), faults)
    for key in document.keys() - _TOP_KEYS:
        faults[str(key)[:64]] = "unknown key"
    jobs = document.get("jobs")
    if not isinstance(jobs, Mapping) or not 1 <= len(jobs) <= MAX_STEPS:
        faults["jobs"] = f"1 to {MAX_STEPS} steps are required"
        jobs = {}
    steps = tuple(_parse_step(str(step_id), raw, connectors, faults) for step_id, raw in jobs.items())
    faults.update(_graph_faults(steps))
    if faults and all(fault is CREDENTIAL_FAULT for fault in faults.values()):
        raise _inline_secret(faults)
    if faults:
        raise Invalid("the definition is not valid", code="definition.invalid", fields=faults)
    return Definition(cast(str, name), steps, triggers)  # checked above


def _parse_step(
    step_id: str, raw: object, connectors: Mapping[str, Connector], faults: dict[str, str]
) -> StepDefinition:
    path = f"jobs.{step_id[:64]}"
    if not _STEP_ID.match(step_id):
        faults[path] = "an id is 1 to 64 of a-z, 0-9, - and _"
    if not isinstance(raw, Mapping):
        faults[path] = "an object is required"
        raw = {}
    for key in raw.keys() - _STEP_KEYS:
        faults[f"{path}.{str(key)[:64]}"] = "unknown key"
    name = str(raw.get("run") or "")
    connector = None if name in TOOLS else connectors.get(name)
    for key, fault in _step_faults(raw, connector):
        faults[f"{path}.{key}"] = fault
    needs = raw.get("needs")
    config = raw.get("config")
    tolerance = raw.get("tolerance")
    profile = raw.get("config_profile")
    return StepDefinition(
        step_id=step_id,
        name=str(raw.get("name") or step_id)[:200],
        tool_id=name if connector is None else connector.tool_id,
        needs=tuple(str(need) for need in needs) if isinstance(needs, Sequence) else (),
        config=dict(config) if isinstance(config, Mapping) else {},
        config_profile=str(profile) if profile else None,
        tolerance=None if tolerance is None else str(tolerance),
        connector=connector,
    )


def _step_faults(raw: Mapping[object, object], connector: Connector | None) -> Iterator[tuple[str, str]]:
    tool = raw.get("run")
    if not isinstance(tool, str):
        yield "run", "the name of a tool is required"
    elif tool not in TOOLS and connector is None:
        yield "run", f"unknown tool {tool[:64]!r}"
    needs = raw.get("needs", [])
    if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
        yield "needs", "a list of step ids is required"
    config = raw.get("config", {})
    if not isinstance(config, Mapping):
        yield "config", "an object is required"
    elif isinstance(tool, str):
        options = {str(name): value for name, value in config.items()}
        for name, fault in _unfit(tool, connector, options).items():
            yield f"config.{name[:64]}", fault
    for path in _inline_secrets(config, "config"):
        yield path, CREDENTIAL_FAULT
    if not isinstance(raw.get("config_profile", ""), str):
        yield "config_profile", "a text is required"
    if not isinstance(raw.get("name", ""), str):
        yield "name", "a text is required"
    tolerance = raw.get("tolerance", 0)
    if isinstance(tolerance, bool) or not _TOLERANCE.match(str(tolerance)):
        yield "tolerance", 'a number of jobs or a percentage like "10%" is required'


def _inline_secrets(value: object, path: str) -> Iterator[str]:
    """Paths of credentials that are written out: by the name of the option, or by what it plainly is."""
    left = [(path, value)]
    while left:
        path, value = left.pop()
        if isinstance(value, Mapping) and not is_reference(value):
            inside = [(str(key), f"{path}.{str(key)[:64]}"[:_MAX_PATH], item) for key, item in value.items()]
            yield from (inner for key, inner, item in inside if _is_secret(key, item))
            left += [(inner, item) for key, inner, item in inside if not _is_secret(key, item)]
        elif isinstance(value, list):
            left += [(f"{path}.{number}"[:_MAX_PATH], item) for number, item in enumerate(value)]
        elif isinstance(value, str):
            header = _HEADER.match(value)
            if _WRITTEN_OUT.search(value) or (header and is_credential_name(header[1])):
                yield path


def _is_secret(key: str, item: object) -> bool:
    return is_credential_name(key) and not (item is None or isinstance(item, bool) or is_reference(item))


def _inline_secret(fields: dict[str, str]) -> Invalid:
    return Invalid(CREDENTIAL_FAULT, code="definition.inline_secret", fields=fields)


def _bounded(steps: Iterable[StepDefinition]) -> Iterator[StepDefinition]:
    size = 0
    for step in steps:
        try:
            size += len(orjson.dumps(step.config, option=orjson.OPT_NON_STR_KEYS))
        except orjson.JSONEncodeError as error:
            detail = "options are JSON, and not nested hundreds deep"
            fields = {f"config.{step.step_id}": detail}
            raise Invalid(detail, code="definition.invalid", fields=fields) from error
        if size > MAX_OPTIONS_BYTES:
            detail = f"the options of all steps have at most {MAX_OPTIONS_BYTES} bytes together"
            raise Invalid(detail, code="definition.too_large", fields={"config": detail})
        yield step


def _graph_faults(steps: Sequence[StepDefinition]) -> dict[str, str]:
    known = {step.step_id for step in steps}
    faults = {
        f"jobs.{step.step_id}.needs": f"unknown step {need[:64]!r}"
        for step in steps
        for need in step.needs
        if need not in known
    }
    rest = {step.step_id: {need for need in step.needs if need in known} for step in steps}
    while free := [step_id for step_id, needs in rest.items() if not needs]:
        for step_id in free:
            del rest[step_id]
        rest = {step_id: needs - set(free) for step_id, needs in rest.items()}
    for step_id in rest:
        faults.setdefault(f"jobs.{step_id}.needs", "the steps need each other in a circle")
    return faults


def _step_json(step: StepDefinition) -> dict[str, object]:
    raw: dict[str, object] = {"name": step.name, "run": step.tool_name}
    if step.needs:
        raw["needs"] = list(step.needs)
    if step.config:
        raw["config"] = dict(step.config)
    if step.config_profile:
        raw["config_profile"] = step.config_profile
    if step.tolerance:
        raw["tolerance"] = step.tolerance
    return raw


def load_definition(source: bytes | str | Mapping[str, object]) -> Mapping[str, object]:
    """The document of a definition, not validated yet.

    Raises:
        Invalid: `definition.invalid`: it is too large, or neither YAML nor JSON.
    """
    if isinstance(source, Mapping):
        return source
    try:
        return load_document(source, "a definition", MAX_SOURCE_BYTES)
    except Unreadable as error:
        raise Invalid(f"the definition is not valid: {error}", code="definition.invalid") from error


BUILTIN: Final[Mapping[str, Definition]] = {
    "domain_discovery": parse_definition(
        {
            "name": "domain_discovery",
            "jobs": {
                "subdomains": {"name": "Subdomains", "run": "dnsprobe"},
                "ports": {"name": "Open ports", "run": "portprobe", "needs": ["subdomains"]},
                "http": {"name": "Web services", "run": "webprobe", "needs": ["ports"]},
                "urls": {"name": "URLs", "run": "webcrawl", "needs": ["http"]},
                "findings": {"name": "Findings", "run": "webcheck", "needs": ["http"]},
            },
        }
    ),
}
"""Definitions that come with the product."""
