"""URLs of a web service: a breadth-first crawl of one origin from its root, robots.txt and sitemap.xml.

robots.txt is read for the paths it names. Forms are never sent: the address of a form that would be sent by
GET is asked for without fields, that of any other is only reported.
"""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

from runlane.probes.egress import Egress, target_host
from runlane.probes.html import Page, read_page
from runlane.probes.job import Done, Emit, ProbeJob, Refused
from runlane.probes.resolver import NoVerdict
from runlane.probes.stream import serve_stream
from runlane.probes.web import Answer, Home, NoAnswer, WebClient
from runlane.probes.webprobe import candidate_urls
from runlane.tools import TOOLS
from runlane.tools.urls import Url, parse_url

MAX_DEPTH: Final = 3
"""Links away from the root; what robots.txt and sitemap.xml name is one link away, a redirect is a link."""

DEFAULT_PAGES: Final = 200
MAX_PAGES: Final = 5_000
MAX_FOUND: Final = 10_000
"""URLs that are reported, asked for or not."""

_MAX_BODY_BYTES: Final = 512 * 1024
_CONCURRENCY: Final = 8
_MAX_SITEMAPS: Final = 5
_LOCATION: Final = re.compile(r"<loc>\s*([^<\s]{1,4096})\s*</loc>", re.IGNORECASE)
_ROBOTS_LINE: Final = re.compile(r"^(allow|disallow|sitemap)\s*:\s*(\S{1,4096})", re.IGNORECASE)
_REFRESH: Final = re.compile(r"url\s*=\s*['\"]?([^'\"]{1,4000})", re.IGNORECASE)
_LINE_BREAKS: Final = re.compile(r"[\t\r\n]")


@dataclass(frozen=True, slots=True)
class _Lead:
    url: Url
    source: str
    is_followed: bool = True


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Crawls one origin."""
    egress = Egress(job.options)
    start = candidate_urls(job.target)[0]
    address = await egress.address_of(job.target)
    coverage = {"scope": start.origin}
    if address is None:
        return Done(complete=False, coverage=coverage)
    host = target_host(job.target)
    home = Home(host, start.port, job.options.headers())
    async with WebClient(egress, {host: address}, home) as client:
        pages = job.options.integer("max_pages", DEFAULT_PAGES, 1, MAX_PAGES)
        crawl = _Crawl(client, start, pages, emit)
        await crawl.run()
    return Done(complete=crawl.is_complete, reachable=crawl.is_reachable, coverage=coverage)


class _Crawl:
    def __init__(self, client: WebClient, start: Url, pages: int, emit: Emit) -> None:
        self.is_complete = True
        self.is_reachable = False
        self._client = client
        self._start = start
        self._pages_left = pages
        self._emit = emit
        self._found: set[str] = set()
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def run(self) -> None:
        level = self._take_new([_Lead(self._start, "start")])
        for depth in range(MAX_DEPTH + 1):
            answers = await self._visit(level)
            if depth == 0 and answers == [None]:
                self.is_complete = False
                return
            await self._report(level, answers, depth)
            if depth == MAX_DEPTH:
                return
            leads = await self._read_indexes() if depth == 0 else []
            for answer in answers:
                leads += find_leads(answer) if answer is not None else ()
            level = self._take_new(leads)

    def _take_new(self, leads: Iterable[_Lead]) -> list[_Lead]:
        """Leads to URLs of this origin that were not seen before, as many as may still be reported."""
        fresh = []
        for lead in leads:
            if lead.url.origin != self._start.origin or str(lead.url) in self._found:
                continue
            if len(self._found) >= MAX_FOUND:
                self.is_complete = False
                break
            self._found.add(str(lead.url))
            fresh.append(lead)
        return fresh

    async def _visit(self, level: list[_Lead]) -> list[Answer | None]:
        """Answers in the order of the leads; None where there is none."""
        wanted = []
        for lead in level:
            wanted.append(lead.is_followed and self._pages_left > 0)
            self._pages_left -= wanted[-1]
            self.is_complete &= wanted[-1] or not lead.is_followed
        async with asyncio.TaskGroup() as group:
            visits = [
                group.create_task(self._get(lead.url)) if is_wanted else None
                for lead, is_wanted in zip(level, wanted, strict=True)
            ]
        return [visit.result() if visit is not None else None for visit in visits]

    async def _get(self, url: Url) -> Answer | None:
        async with self._slots:
            try:
                answer = await self._client.get(url, _MAX_BODY_BYTES)
            except (NoAnswer, NoVerdict, Refused):
                self.is_complete = False
                return None
            self.is_reachable = True
            return answer

    async def _report(self, level: list[_Lead], answers: list[Answer | None], depth: int) -> None:
        for lead, answer in zip(level, answers, strict=True):
            await self._emit(
                {
                    "url": str(lead.url),
                    "status": answer.status if answer else None,
                    "content_type": answer.headers.get("content-type") if answer else None,
                    "depth": depth,
                    "source": lead.source,
                }
            )

    async def _read_indexes(self) -> list[_Lead]:
        """What robots.txt names, then what the sitemaps list."""
        robots = await self._get(self._at("/robots.txt"))
        lines = _robots_lines(robots) if robots is not None and robots.status == 200 else []
        leads = [
            _Lead(url, "robots")
            for kind, value in lines
            if kind != "sitemap" and (url := _join(self._start, value.partition("*")[0].rstrip("$")))
        ]
        sitemaps = [self._at("/sitemap.xml")]
        sitemaps += [url for kind, value in lines if kind == "sitemap" and (url := _join(self._start, value))]
        return leads + [_Lead(url, "sitemap") for url in await self._read_sitemaps(sitemaps)]

    async def _read_sitemaps(self, queue: list[Url]) -> list[Url]:
        found: list[Url] = []
        seen: set[str] = set()
        for url in queue:  # grows while it is read: sitemaps of sitemaps
            if url.origin != self._start.origin or str(url) in seen or len(seen) >= _MAX_SITEMAPS:
                continue
            seen.add(str(url))
            answer = await self._get(url)
            if answer is None or answer.status != 200 or answer.is_html:
                continue
            text = answer.text
            urls = [each for match in _LOCATION.finditer(text) if (each := _join(url, match[1]))]
            (queue if "<sitemapindex" in text else found).extend(urls[:MAX_FOUND])
        return found

    def _at(self, path: str) -> Url:
        return parse_url(f"{self._start.origin}{path[1:]}")


def find_leads(answer: Answer) -> list[_Lead]:
    """Where an answer leads: scripts, links and forms of a page in document order, then its redirect."""
    leads = list(_page_leads(answer.url, read_page(answer.text))) if answer.is_html else []
    location = answer.headers.get("location") if 300 <= answer.status < 400 else None
    if location and (url := _join(answer.url, location)):
        leads.append(_Lead(url, "link"))
    return leads


def _page_leads(url: Url, page: Page) -> Iterator[_Lead]:
    base = url
    for tag in page.tags:
        attributes = tag.attributes
        match tag.name:
            case "base":
                base = _join(url, attributes.get("href", "")) or base
            case "a" | "area" if "href" in attributes:
                yield from _lead(base, attributes["href"], "link")
            case "iframe" | "frame" if "src" in attributes:
                yield from _lead(base, attributes["src"], "link")
            case "script" if "src" in attributes:
                yield from _lead(base, attributes["src"], "script")
            case "form":
                is_get = attributes.get("method", "get").strip().lower() == "get"
                yield from _lead(base, attributes.get("action", ""), "form", is_followed=is_get)
            case "meta" if attributes.get("http-equiv", "").lower() == "refresh":
                refresh = _REFRESH.search(attributes.get("content", ""))
                yield from _lead(base, refresh[1], "link") if refresh else ()


def _lead(base: Url, reference: str, source: str, *, is_followed: bool = True) -> Iterator[_Lead]:
    if url := _join(base, reference):
        yield _Lead(url, source, is_followed)


def _join(base: Url, reference: str) -> Url | None:
    """The URL that a reference means on a page, as browsers read it; None if it is no web address."""
    reference = _LINE_BREAKS.sub("", reference).strip().replace(" ", "%20")
    try:
        return parse_url(urljoin(str(base), reference))
    except ValueError:
        return None


def _robots_lines(answer: Answer) -> list[tuple[str, str]]:
    if answer.is_html:
        return []
    matches = (_ROBOTS_LINE.match(line.strip()) for line in answer.text.splitlines()[:5_000])
    return [(match[1].lower(), match[2]) for match in matches if match]


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["webcrawl"], run_job)


if __name__ == "__main__":
    sys.exit(main())
