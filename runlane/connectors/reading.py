"""Reading a manifest: everything is checked, and all faults are answered at once, each with its path."""

import re
from collections.abc import Mapping
from typing import Final

from runlane.connectors.arguments import Known, read_arguments
from runlane.connectors.faults import Part
from runlane.connectors.limits import read_limits
from runlane.connectors.manifest import Input, Manifest, Network, Output
from runlane.connectors.options import read_options
from runlane.documents import Unreadable, load_document
from runlane.errors import Invalid
from runlane.tools import TOOLS, Category, FansOut

MAX_SOURCE_BYTES: Final = 64 * 1024
"""A manifest as a file or in a request."""

SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,63}")
VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,49}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?(?::[0-9]{1,5})?")
_PATH: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?")
PROGRAM: Final = re.compile(r"/[A-Za-z0-9._/+-]{1,254}")

_NEVER: Final = "a container never gets that"
_KEYS: Final = frozenset(
    {
        *("slug", "name", "version", "category", "fans_out", "image", "digest", "entrypoint", "argv", "ipv6"),
        *("input", "output", "network", "options", "limits"),
    }
)
_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("privileged", "cap_add", "capabilities", "devices", "device_requests"), _NEVER),
    **dict.fromkeys(("mounts", "volumes", "binds", "volumes_from"), _NEVER + ": it sees no file of the host"),
    **dict.fromkeys(("network_mode", "pid_mode", "ipc_mode", "userns_mode", "security_opt", "ports"), _NEVER),
    **dict.fromkeys(("env", "environment"), "options are given as arguments or on the standard input"),
    "user": "the host decides: it is never root",
    "tag": "a tag can be moved; the digest says which image runs",
}
_HOST_NETWORK: Final = "host networking is refused: a container would stand where the worker stands"


def read_manifest(raw: object) -> Manifest:
    """Reads and checks a manifest.

    Raises:
        Invalid: code `connector.invalid`, with one entry in `fields` for each fault.
    """
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise _invalid({"manifest": "an object is required"})
    part = Part(raw, {})
    part.only(_KEYS, _REASONS)
    manifest = _read(part)
    _check_together(part, manifest)
    if part.faults:
        raise _invalid(part.faults)
    return manifest


def load_manifest(source: bytes | str) -> Mapping[str, object]:
    """The document of a manifest file, YAML or JSON, not yet read by `read_manifest`.

    Raises:
        Invalid: code `connector.invalid`: it is too large or no document.
    """
    try:
        return load_document(source, "a manifest", MAX_SOURCE_BYTES)
    except Unreadable as error:
        raise _invalid({"manifest": str(error)}) from error


def _read(part: Part) -> Manifest:
    fans_out = FansOut(part.one_of("fans_out", tuple(FansOut)))
    network = _network(part)
    options = read_options(part.child("options"))
    ipv6 = part.lines("ipv6", 8, 200)
    known = Known(fans_out, network is Network.TARGETS, options, ipv6)
    return Manifest(
        slug=_matching(part, "slug", SLUG, "2 to 64 of a-z, 0-9 and - are required"),
        name=part.text("name", 100),
        version=_matching(part, "version", VERSION, "1 to 50 letters, digits and ._+- are required"),
        category=Category(part.one_of("category", tuple(Category))),
        fans_out=fans_out,
        image=_image(part),
        digest=_matching(part, "digest", DIGEST, "sha256: and 64 hex digits are required"),
        entrypoint=_entrypoint(part),
        argv=read_arguments(part, "argv", known),
        ipv6=ipv6,
        input=Input(part.one_of("input", tuple(Input))),
        output=Output(part.one_of("output", tuple(Output))),
        network=network,
        options=options,
        limits=read_limits(part.child("limits")),
    )


def _check_together(part: Part, manifest: Manifest) -> None:
    """Notes what is wrong between keys that are each in order."""
    if manifest.slug in TOOLS:
        part.fault("slug", "a tool that comes with the product is called that")
    if manifest.output is Output.NMAP_XML:
        if manifest.category is not Category.PORTS_SCANNER:
            part.fault("output", "nmap-xml is read as records of ports_scanner")
        if manifest.network is not Network.TARGETS:
            part.fault("output", "nmap-xml is read for an address: network: targets is needed")
        if "ports" not in manifest.options:
            part.fault("output", "nmap-xml needs an option ports: it says what was looked at")


def _matching(part: Part, key: str, form: re.Pattern[str], reason: str) -> str:
    value = part.values.get(key)
    if isinstance(value, str) and form.fullmatch(value):
        return value
    part.fault(key, reason)
    return ""


def _network(part: Part) -> Network:
    if part.values.get("network") == "host":
        part.fault("network", _HOST_NETWORK)
        return Network.NONE
    return Network(part.one_of("network", tuple(Network)))


def _image(part: Part) -> str:
    value = part.values.get("image")
    if not isinstance(value, str) or not 1 <= len(value) <= 255:
        part.fault("image", "the repository of an image is required")
        return ""
    first, *rest = value.split("/")
    form = _REGISTRY if rest else _PATH
    if not form.fullmatch(first) or not all(_PATH.fullmatch(piece) for piece in rest):
        part.fault("image", "a repository in lower case is required, without tag and digest")
    return value


def _entrypoint(part: Part) -> tuple[str, ...]:
    arguments = part.lines("entrypoint", 16, 1_000)
    if not arguments or not PROGRAM.fullmatch(arguments[0]):
        part.fault("entrypoint", "the whole path of the program in the image is required")
    elif any("{" in argument or "}" in argument for argument in arguments):
        part.fault("entrypoint", "values of a job stand in argv")
    return arguments


def _invalid(fields: dict[str, str]) -> Invalid:
    return Invalid("the manifest is not valid", code="connector.invalid", fields=fields)
