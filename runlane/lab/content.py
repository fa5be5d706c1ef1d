"""What a lab web server answers: a pure function from site and path, shared by the servers and the truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import urljoin, urlsplit

from runlane.lab.model import Page, Plant, Site, Via, Web

ROBOTS_PATH = "/robots.txt"
SITEMAP_PATH = "/sitemap.xml"
ICON_PATH = "/favicon.ico"
_LOCKED = Page("/", title="401 Unauthorized", text="Who are you?", status=401)
_PARENT = ("../",)


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a web service: what "the same site" means to a crawler."""

    scheme: str
    host: str
    port: int

    def url(self, path: str) -> str:
        """The URL of `path` here; the port is always written (no listener of a lab has a default one)."""
        return f"{self.scheme}://{self.host}:{self.port}{path}"

    def path_of(self, url: str) -> str | None:
        """Path and query of `url`, or None when it belongs to another origin."""
        parts = urlsplit(url)
        if (parts.scheme, parts.hostname, parts.port) != (self.scheme, self.host, self.port):
            return None
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. `page` is the description it was made from."""

    status: int
    headers: Mapping[str, str]
    """Everything but the framing (Content-Length, Connection)."""
    body: bytes
    page: Page


def answer(web: Web, origin: Origin, target: str, login: tuple[str, str] | None = None) -> Answer:
    """Answers a GET of `target` (path with query) on `origin`, made with a login or without one.

    An exact match of path and query goes first, then the path alone, then the catch-all, then 404.
    """
    site = web.site_for(origin.host)
    is_locked = site.login is not None and login != site.login
    page = _LOCKED if is_locked else _find(site, origin, target)
    headers = {"Server": site.server, "Content-Type": page.content_type, **site.headers}
    if is_locked:
        headers["WWW-Authenticate"] = 'Basic realm="Lab"'
    if page.location is not None:
        headers["Location"] = page.location.format(host=origin.host)
    text = _render_html(site, page) if page.is_html else page.text
    return Answer(page.status, headers, text.encode() if page.data is None else page.data, page)


def references(origin: Origin, path: str, page: Page) -> list[tuple[str, Via]]:
    """The paths on the same origin that `page`, served at `path`, leads to, without fragments.

    In document order; a directory listing also leads to its parent, a redirect to its location.
    """
    here = origin.url(path)
    written = [
        *((each, Via.SCRIPT) for each in page.scripts),
        *((each, Via.LINK) for each in _PARENT if page.plant is Plant.DIRECTORY_LISTING),
        *((each, Via.LINK) for each in page.links),
        *((each, Via.FORM) for each in page.forms),
    ]
    if page.location is not None:
        written.append((page.location.format(host=origin.host), Via.LINK))
    found = [(origin.path_of(urljoin(here, reference)), via) for reference, via in written]
    return [(path, via) for path, via in found if path is not None]


def _find(site: Site, origin: Origin, target: str) -> Page:
    path = target.partition("?")[0]
    declared = {each.path: each for each in (*site.pages, *_icons(site), *_crawler_files(site, origin))}
    page = declared.get(target) or declared.get(path) or site.catch_all
    return page or Page(path, title="404 Not Found", text="There is nothing here.", status=404)


def _icons(site: Site) -> list[Page]:
    return [] if site.icon is None else [Page(ICON_PATH, content_type="image/x-icon", data=site.icon)]


def _crawler_files(site: Site, origin: Origin) -> list[Page]:
    pages = []
    if site.disallow or site.sitemap:
        lines = ["User-agent: *", *(f"Disallow: {each}" for each in site.disallow)]
        if site.sitemap:
            lines.append(f"Sitemap: {origin.url(SITEMAP_PATH)}")
        pages.append(Page(ROBOTS_PATH, text="\n".join(lines) + "\n", content_type="text/plain"))
    if site.sitemap:
        places = "".join(f"<url><loc>{escape(origin.url(each))}</loc></url>" for each in site.sitemap)
        text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{places}</urlset>'
        pages.append(Page(SITEMAP_PATH, text=text, content_type="application/xml"))
    return pages


def _render_html(site: Site, page: Page) -> str:
    head = [f"<title>{escape(page.title)}</title>"]
    if site.generator is not None:
        head.append(f'<meta name="generator" content="{escape(site.generator)}">')
    head += [f'<script src="{escape(each)}"></script>' for each in page.scripts]
    body = _render_listing(page) if page.plant is Plant.DIRECTORY_LISTING else _render_prose(page)
    return f"<!doctype html><html><head>{''.join(head)}</head><body>\n{body}\n</body></html>\n"


def _render_listing(page: Page) -> str:
    rows = "\n".join(
        f'<a href="{escape(each)}">{escape(each)}</a>  01-Jan-2026 10:00  4711' for each in page.links
    )
    return f'<h1>{escape(page.title)}</h1><hr><pre><a href="../">../</a>\n{rows}\n</pre><hr>'


def _render_prose(page: Page) -> str:
    links = "".join(f'<li><a href="{escape(each)}">{escape(each)}</a></li>' for each in page.links)
    forms = "".join(f'<form action="{escape(each)}"><input name="q"></form>' for each in page.forms)
    return f"<h1>{escape(page.title)}</h1><p>{escape(page.text)}</p><ul>{links}</ul>{forms}"
