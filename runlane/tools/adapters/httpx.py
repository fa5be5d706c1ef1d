"""httpx: answers of many web services. Each member is told as `host:port` or with the scheme that is known.

It resolves names itself, so what it may contact is bounded by its own deny list and by the host's firewall.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from runlane.tools.adapters.adapter import Adapter, Command, Conclusion, Found, Many, Raw, ToolJob, Workplace
from runlane.tools.adapters.jobs import web_port
from runlane.tools.adapters.jsonl import read_object, text_or_none, texts_of, whole_or_none
from runlane.tools.adapters.options import Headers, Options, Whole
from runlane.tools.adapters.projectdiscovery import (
    FORBIDDEN,
    GO_ADDRESS_SPACE,
    header_files,
    program,
    resolver_arguments,
)
from runlane.tools.records import Fields

_DURATION: Final = re.compile(r"(?:(\d+)m)?(?:([\d.]+)(s|ms|µs|us|ns))?")
_UNIT_MS: Final[Mapping[str, float]] = {"s": 1e3, "ms": 1.0, "µs": 1e-3, "us": 1e-3, "ns": 1e-6}
_MAX_HEADERS: Final = 100


def _line_of(job: ToolJob) -> str:
    place = f"{job.literal}:{web_port(job)}"
    if job.tls is None:
        return place
    return f"{'https' if job.tls else 'http'}://{place}"


def command(jobs: Sequence[ToolJob], options: Options, place: Workplace) -> Command:
    """One service a line on standard input."""
    configured, files = header_files(options, "header", place)
    argv = (
        *("httpx", "-json", "-silent", "-no-color", "-disable-update-check"),
        *("-status-code", "-title", "-web-server", "-content-type", "-content-length", "-tech-detect"),
        *("-response-time", "-hash", "sha256", "-include-response-header", "-tls-grab", "-omit-body"),
        *("-threads", str(options.whole("threads", 25))),
        *("-rate-limit", str(options.rate("rate", 150))),
        *("-timeout", str(options.whole("request_s", 10))),
        *configured,
        *("-retries", "1", "-deny", FORBIDDEN),
        *resolver_arguments(options),
        *("-stats", "-stats-interval", "5"),
    )
    return Command(argv, "".join(f"{_line_of(job)}\n" for job in jobs).encode(), files=files)


def read(line: bytes) -> Found | None:
    """Reads one answer; a line that only says that there was none is about nothing."""
    fields = read_object(line)
    if fields.values.get("failed") is True:
        return None
    url = fields.url("url")
    record: dict[str, object] = {
        "url": url.origin,
        "status": fields.integer("status_code", 100, 999),
        "title": text_or_none(fields, "title"),
        "server": text_or_none(fields, "webserver"),
        "content_type": text_or_none(fields, "content_type"),
        "content_length": _length(fields),
        "headers": _headers(fields),
        "final_url": text_or_none(fields, "final_url"),
        "technologies": [_technology(text) for text in texts_of(fields, "tech")],
        "body_sha256": _body_hash(fields),
        "tls": _tls(fields),
        "response_ms": _milliseconds(text_or_none(fields, "time") or ""),
    }
    return Found(fields.text("input", 4_096), record)


def conclude(job: ToolJob, _options: Options, records: Sequence[Raw]) -> Conclusion:
    """A port that answers no HTTP is a valid empty result."""
    return Conclusion(
        complete=True, reachable=bool(records), coverage={"host": job.host, "port": web_port(job)}
    )


def _length(fields: Fields) -> int | None:
    length = whole_or_none(fields, "content_length")
    return length if length is not None and length >= 0 else None


def _headers(fields: Fields) -> dict[str, str]:
    headers = fields.values.get("header")
    if not isinstance(headers, dict):
        return {}
    # it writes hyphens as underscores
    texts = {name.lower().replace("_", "-"): _joined(value) for name, value in headers.items()}
    return dict(list(texts.items())[:_MAX_HEADERS])


def _joined(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def _technology(text: str) -> dict[str, object]:
    name, _, version = text.partition(":")
    return {"name": name[:100], "version": version[:100] or None}


def _body_hash(fields: Fields) -> str | None:
    hashes = fields.child("hash") if isinstance(fields.values.get("hash"), dict) else None
    return text_or_none(hashes, "body_sha256") if hashes is not None else None


def _tls(fields: Fields) -> dict[str, object] | None:
    if not isinstance(fields.values.get("tls"), dict):
        return None
    tls = fields.child("tls")
    if tls is None:
        return None
    hashes = tls.child("fingerprint_hash") if isinstance(tls.values.get("fingerprint_hash"), dict) else None
    return {
        "version": text_or_none(tls, "tls_version"),
        "cipher": text_or_none(tls, "cipher"),
        "subject_cn": text_or_none(tls, "subject_cn"),
        "issuer_cn": text_or_none(tls, "issuer_cn"),
        "san": texts_of(tls, "subject_an"),
        "not_before": text_or_none(tls, "not_before"),
        "not_after": text_or_none(tls, "not_after"),
        "serial": text_or_none(tls, "serial"),
        "sha256": text_or_none(hashes, "sha256") if hashes is not None else None,
        "self_signed": tls.values.get("self_signed") is True,
        "expired": tls.values.get("expired") is True,
    }


def _milliseconds(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    minutes, number, unit = match.groups()
    try:
        total = int(minutes or 0) * 60_000 + float(number or 0) * _UNIT_MS.get(unit or "s", 0.0)
    except ValueError:
        return None
    return round(total) if total < 2**31 else None


ADAPTER: Final = Adapter(
    programs=(program("httpx"),),
    schema={
        "headers": Headers(),
        "threads": Whole(1, 500),
        "rate": Whole(1, 10_000),
        "request_s": Whole(1, 60),
    },
    way=Many(command, _line_of, read, conclude),
    silence_s=120,
    needs_home=True,
    address_space_bytes=GO_ADDRESS_SPACE,
)
