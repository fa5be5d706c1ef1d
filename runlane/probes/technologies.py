"""Software that an HTTP answer gives away: a small table of our own rules.

A rule names where to look and a pattern; a group in the pattern is the version. Patterns are matched against
texts of at most a few thousand characters and have no nested repetition.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runlane.probes.html import Page
from runlane.probes.web import Answer

_MAX_TEXT: Final = 2_000
_VERSION: Final = r"(?:[/ ]v?(\d[\w.-]{0,30}))?"


class _Place(StrEnum):
    HEADER = "header"
    COOKIE = "cookie"
    GENERATOR = "generator"
    ASSET = "asset"  # address of a script or style sheet


@dataclass(frozen=True, slots=True)
class _Rule:
    technology: str
    place: _Place
    pattern: re.Pattern[str]
    name: str = ""
    """Header name; empty elsewhere."""


def _header(technology: str, name: str, pattern: str) -> _Rule:
    return _Rule(technology, _Place.HEADER, re.compile(pattern, re.IGNORECASE), name)


def _cookie(technology: str, pattern: str) -> _Rule:
    return _Rule(technology, _Place.COOKIE, re.compile(pattern))


def _generator(technology: str, pattern: str) -> _Rule:
    return _Rule(technology, _Place.GENERATOR, re.compile(pattern, re.IGNORECASE))


def _asset(technology: str, pattern: str) -> _Rule:
    return _Rule(technology, _Place.ASSET, re.compile(pattern, re.IGNORECASE))


RULES: Final = (
    _header("nginx", "server", rf"\bnginx\b{_VERSION}"),
    _header("OpenResty", "server", rf"\bopenresty\b{_VERSION}"),
    _header("Apache HTTP Server", "server", rf"\bApache\b(?!-Coyote){_VERSION}"),
    _header("Apache Tomcat", "server", rf"\bApache-Coyote\b{_VERSION}"),
    _header("Microsoft IIS", "server", rf"\bMicrosoft-IIS\b{_VERSION}"),
    _header("lighttpd", "server", rf"\blighttpd\b{_VERSION}"),
    _header("Caddy", "server", rf"\bCaddy\b{_VERSION}"),
    _header("LiteSpeed", "server", rf"\bLiteSpeed\b{_VERSION}"),
    _header("Envoy", "server", r"\benvoy\b"),
    _header("Jetty", "server", r"\bJetty\((\d[\w.-]{0,30})\)"),
    _header("gunicorn", "server", rf"\bgunicorn\b{_VERSION}"),
    _header("uvicorn", "server", rf"\buvicorn\b{_VERSION}"),
    _header("Werkzeug", "server", rf"\bWerkzeug\b{_VERSION}"),
    _header("Python", "server", rf"\bC?Python\b{_VERSION}"),
    _header("OpenSSL", "server", rf"\bOpenSSL\b{_VERSION}"),
    _header("Cloudflare", "server", r"^cloudflare$"),
    _header("Varnish", "via", r"\bvarnish\b"),
    _header("PHP", "x-powered-by", rf"\bPHP\b{_VERSION}"),
    _header("ASP.NET", "x-powered-by", r"\bASP\.NET\b"),
    _header("ASP.NET", "x-aspnet-version", r"^(\d[\w.-]{0,30})"),
    _header("Express", "x-powered-by", r"^Express$"),
    _header("Next.js", "x-powered-by", rf"\bNext\.js\b{_VERSION}"),
    _header("Drupal", "x-generator", r"\bDrupal\b(?: (\d[\w.-]{0,30}))?"),
    _cookie("PHP", r"^PHPSESSID$"),
    _cookie("Java Servlet", r"^JSESSIONID$"),
    _cookie("ASP.NET", r"^ASP\.NET_SessionId$"),
    _cookie("Express", r"^connect\.sid$"),
    _cookie("Laravel", r"^laravel_session$"),
    _cookie("Django", r"^csrftoken$"),
    _cookie("Ruby on Rails", r"^_rails_session$"),
    _generator("WordPress", rf"^WordPress{_VERSION}"),
    _generator("Drupal", rf"^Drupal{_VERSION}"),
    _generator("Joomla", r"^Joomla!"),
    _generator("TYPO3", rf"^TYPO3 CMS{_VERSION}"),
    _generator("Hugo", rf"^Hugo{_VERSION}"),
    _generator("Jekyll", rf"^Jekyll{_VERSION}"),
    _generator("Ghost", rf"^Ghost{_VERSION}"),
    _generator("MediaWiki", rf"^MediaWiki{_VERSION}"),
    _generator("Docusaurus", rf"^Docusaurus{_VERSION}"),
    _generator("Sphinx", rf"^Sphinx{_VERSION}"),
    _asset("WordPress", r"/wp-(?:content|includes)/"),
    _asset("jQuery", r"/jquery[.-](\d+\.\d+(?:\.\d+)?)(?:\.slim)?(?:\.min)?\.js"),
    _asset("Bootstrap", r"/bootstrap[@/](\d+\.\d+\.\d+)/"),
    _asset("Next.js", r"/_next/static/"),
)


def find_technologies(answer: Answer, page: Page) -> list[dict[str, str | None]]:
    """What the answer gives away: name and version or null, each name once, sorted by name."""
    found: dict[str, str | None] = {}
    for rule in RULES:
        for text in _texts(rule, answer, page):
            if match := rule.pattern.search(text[:_MAX_TEXT]):
                version = match[1] if match.re.groups else None
                found[rule.technology] = found.get(rule.technology) or version
    return [{"name": name, "version": version} for name, version in sorted(found.items())]


def _texts(rule: _Rule, answer: Answer, page: Page) -> list[str]:
    match rule.place:
        case _Place.HEADER:
            return [answer.headers[rule.name]] if rule.name in answer.headers else []
        case _Place.COOKIE:
            return list(answer.cookies)
        case _Place.GENERATOR:
            return [
                tag.attributes.get("content", "")
                for tag in page.tags
                if tag.name == "meta" and tag.attributes.get("name", "").lower() == "generator"
            ]
        case _Place.ASSET:
            sources = (tag.attributes.get("src") or tag.attributes.get("href") for tag in page.tags)
            return [source for source in sources if source][:500]
