"""katana: URLs of many web services.

Sample: `{"request": {"endpoint": "http://a.example.com/x", "tag": "a"}, "response": {"status_code": 200}}`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from runlane.tools.adapters.adapter import Adapter, Command, Conclusion, Found, Many, Raw, ToolJob, Workplace
from runlane.tools.adapters.jobs import web_url
from runlane.tools.adapters.jsonl import read_object, text_or_none, whole_or_none
from runlane.tools.adapters.options import Headers, Options, Whole
from runlane.tools.adapters.origins import origin_of, origin_of_job
from runlane.tools.adapters.projectdiscovery import (
    FORBIDDEN,
    GO_ADDRESS_SPACE,
    header_files,
    program,
    resolver_arguments,
)
from runlane.tools.records import Fields, MalformedRecord

_SOURCES: Final[Mapping[str, str]] = {
    "form": "form",
    "script": "script",
    "js": "script",
    "robotstxt": "robots",
    "sitemapxml": "sitemap",
}
"""What it calls the place where it saw a URL; everything else is a link."""


def command(jobs: Sequence[ToolJob], options: Options, place: Workplace) -> Command:
    """One URL a line on standard input. It leaves no host that it was given."""
    configured, files = header_files(options, "headers", place)
    argv = (
        *("katana", "-jsonl", "-silent", "-no-color", "-disable-update-check", "-omit-raw", "-omit-body"),
        *("-field-scope", "fqdn", "-disable-redirects", "-known-files", "all"),
        *("-depth", str(options.whole("depth", 3))),
        *("-crawl-duration", f"{options.whole('crawl_s', 120)}s"),
        *("-concurrency", "5", "-parallelism", "5"),
        *("-rate-limit", str(options.rate("rate", 50))),
        *("-timeout", str(options.whole("request_s", 10))),
        *configured,
        *("-exclude", FORBIDDEN),
        *resolver_arguments(options),
    )
    return Command(argv, "".join(f"{web_url(job)}\n" for job in jobs).encode(), files=files)


def read(line: bytes) -> Found:
    """Reads one URL."""
    fields = read_object(line)
    request, response = _part(fields, "request"), _part(fields, "response")
    if request is None:
        raise MalformedRecord("request: object expected")
    url = request.url("endpoint")
    headers = _part(response, "headers") if response is not None else None
    status = whole_or_none(response, "status_code") if response is not None else None
    record: dict[str, object] = {
        "url": str(url),
        "status": status if status is not None and 100 <= status <= 999 else None,
        "content_type": _content_type(headers),
        # it does not say how far away a URL is; what was seen on no page is where it began
        "depth": 1 if text_or_none(request, "source") else 0,
        "source": _source(request),
    }
    return Found(origin_of(str(url)), record)


def conclude(job: ToolJob, _options: Options, records: Sequence[Raw]) -> Conclusion:
    """It does not say whether it saw all, so what it does not report may still be there."""
    is_reachable = any(record.get("status") is not None for record in records)
    return Conclusion(complete=False, reachable=is_reachable, coverage={"scope": origin_of_job(job)})


def _part(fields: Fields, name: str) -> Fields | None:
    value = fields.values.get(name)
    return Fields(value) if isinstance(value, dict) else None


def _content_type(headers: Fields | None) -> str | None:
    if headers is None:
        return None
    return next(
        (
            value
            for name, value in headers.values.items()
            if name.lower().replace("_", "-") == "content-type" and isinstance(value, str) and value
        ),
        None,
    )


def _source(request: Fields) -> str:
    if not text_or_none(request, "source"):
        return "start"
    return _SOURCES.get(text_or_none(request, "tag") or "", "link")


ADAPTER: Final = Adapter(
    programs=(program("katana"),),
    schema={
        "headers": Headers(),
        "depth": Whole(1, 10),
        "crawl_s": Whole(1, 600),
        "rate": Whole(1, 1_000),
        "request_s": Whole(1, 60),
    },
    way=Many(command, origin_of_job, read, conclude),
    silence_s=150,
    needs_home=True,
    address_space_bytes=GO_ADDRESS_SPACE,
)
