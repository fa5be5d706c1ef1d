"""nuclei: findings of templates on many web services.

Sample: `{"template-id": "git-config", "info": {"name": "…", "severity": "medium"}, "matched-at": "http://…"}`.
Requests and responses are left out of its output: they hold cookies and tokens.
"""

import re
from collections.abc import Sequence
from typing import Final

from runlane.tools.adapters.adapter import Adapter, Command, Conclusion, Found, Many, Raw, ToolJob, Workplace
from runlane.tools.adapters.jobs import web_url
from runlane.tools.adapters.jsonl import read_object, text_or_none, texts_of
from runlane.tools.adapters.options import Headers, Options, Whole, Words
from runlane.tools.adapters.origins import origin_of, origin_of_job
from runlane.tools.adapters.projectdiscovery import GO_ADDRESS_SPACE, header_files, program
from runlane.tools.records import Fields, MalformedRecord

_SEVERITIES: Final = frozenset({"info", "low", "medium", "high", "critical"})
_NOT_IN_ID: Final = re.compile(r"[^a-z0-9._:-]+")
_CWE: Final = re.compile(r"cwe-[0-9]{1,6}", re.IGNORECASE)
_EXCLUDED_TAGS: Final = ("dos", "fuzz", "intrusive", "brute-force")
"""Templates that may harm what they look at. A step can only exclude more."""


def command(jobs: Sequence[ToolJob], options: Options, place: Workplace) -> Command:
    """One URL a line on standard input. Templates that run code, files or a browser on this host stay out."""
    tags = options.words("tags")
    configured, files = header_files(options, "header", place)
    excluded = (*_EXCLUDED_TAGS, *options.words("exclude_tags"))
    argv = (
        *("nuclei", "-jsonl", "-silent", "-no-color", "-disable-update-check", "-omit-raw", "-omit-template"),
        *("-no-interactsh", "-exclude-type", "code,file,headless,javascript"),
        *("-severity", ",".join(options.words("severity", tuple(sorted(_SEVERITIES))))),
        *(("-tags", ",".join(tags)) if tags else ()),
        *("-exclude-tags", ",".join(dict.fromkeys(excluded))),
        *("-rate-limit", str(options.rate("rate", 50))),
        *("-concurrency", str(options.whole("concurrency", 15))),
        *("-timeout", str(options.whole("request_s", 10))),
        *configured,
        *("-disable-redirects",),
        *(() if options.allow else ("-restrict-local-network-access",)),
        *("-stats", "-stats-json", "-stats-interval", "5"),
    )
    return Command(argv, "".join(f"{web_url(job)}\n" for job in jobs).encode(), files=files)


def read(line: bytes) -> Found | None:
    """Reads one finding. Where it was is `matched-at`; a match without a URL is placed at the service."""
    fields = read_object(line)
    if "template-id" not in fields.values and "duration" in fields.values:
        return None  # its statistics
    if fields.values.get("matcher-status") is False:
        return None
    info = fields.child("info")
    if info is None:
        raise MalformedRecord("info: object expected")
    place = text_or_none(fields, "matched-at") or ""
    url = place if place.startswith(("http://", "https://")) else text_or_none(fields, "url") or place
    record: dict[str, object] = {
        "check": _check(fields),
        "name": info.text("name", 500),
        "severity": _severity(info),
        "url": url,
        "description": text_or_none(info, "description"),
        "evidence": "\n".join(texts_of(fields, "extracted-results")) or None,
        "remediation": text_or_none(info, "remediation"),
        "references": texts_of(info, "reference"),
        "cwe": _weaknesses(info),
    }
    return Found(origin_of(url), record)


def conclude(job: ToolJob, _options: Options, records: Sequence[Raw]) -> Conclusion:
    """It does not say which templates it has tried, so what it does not report may still be there."""
    return Conclusion(complete=False, reachable=bool(records), coverage={"url": origin_of_job(job)})


def _check(fields: Fields) -> str:
    parts = [fields.text("template-id", 150), text_or_none(fields, "matcher-name")]
    text = ":".join(part for part in parts if part).lower()
    return _NOT_IN_ID.sub("-", text)[:200].lstrip("._:-")


def _severity(info: Fields) -> str:
    severity = (text_or_none(info, "severity") or "").lower()
    return severity if severity in _SEVERITIES else "info"


def _weaknesses(info: Fields) -> list[str]:
    found = info.values.get("classification")
    texts = texts_of(Fields(found), "cwe-id") if isinstance(found, dict) else []
    return [text.upper() for text in texts if _CWE.fullmatch(text)]


ADAPTER: Final = Adapter(
    programs=(program("nuclei"),),
    schema={
        "headers": Headers(),
        "tags": Words(),
        "exclude_tags": Words(),
        "severity": Words(_SEVERITIES),
        "rate": Whole(1, 1_000),
        "concurrency": Whole(1, 100),
        "request_s": Whole(1, 60),
    },
    way=Many(command, origin_of_job, read, conclude),
    silence_s=180,
    needs_home=True,
    address_space_bytes=GO_ADDRESS_SPACE,
)
