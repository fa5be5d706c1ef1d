"""What answers HTTP on a port: one record with the service's own answer to `GET /` and where it leads.

A port that speaks something else, or nothing, is a valid empty result.
"""

import hashlib
import sys
from typing import Final
from urllib.parse import urljoin

from runlane.probes.egress import Egress, target_host
from runlane.probes.html import Page, read_page
from runlane.probes.job import BadInput, Done, Emit, ProbeJob, ProbeTarget, Refused
from runlane.probes.resolver import NoVerdict
from runlane.probes.stream import serve_stream
from runlane.probes.technologies import find_technologies
from runlane.probes.tls import describe, utc_now
from runlane.probes.web import Answer, Home, NoAnswer, WebClient
from runlane.tools import TOOLS
from runlane.tools.urls import MalformedUrl, Url, parse_url

MAX_REDIRECTS: Final = 5
"""Redirects that are followed; each one is judged anew by the egress policy."""

_MAX_ICON_BYTES: Final = 256 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


async def run_job(job: ProbeJob, emit: Emit) -> Done:
    """Probes one port of one host."""
    egress = Egress(job.options)
    host = target_host(job.target)
    candidates = candidate_urls(job.target)
    port = candidates[0].port
    address = await egress.address_of(job.target)
    coverage = {"host": host, "port": port}
    if address is None:
        return Done(coverage=coverage)
    async with WebClient(egress, {host: address}, Home(host, port, job.options.headers())) as client:
        for url in candidates:
            try:
                answer = await client.get(url)
            except NoAnswer:
                continue
            await emit(await _describe(client, answer))
            return Done(reachable=True, coverage=coverage)
    return Done(reachable=await _accepts(egress, address, port), coverage=coverage)


def candidate_urls(target: ProbeTarget) -> list[Url]:
    """The root URLs to try, in order: the target's own, or http and https as far as both are possible.

    Raises:
        BadInput: the target has no port, or its URL cannot be read.
    """
    if target.url is None and target.port is None:
        raise BadInput("a port or a URL is needed")
    host = target_host(target)
    authority = f"[{host}]" if ":" in host else host
    # TLS first unless it is known not to be there: such a server answers plain HTTP with an error of its own
    schemes = ("http",) if target.tls is False else ("https", "http")
    texts = [target.url] if target.url else [f"{scheme}://{authority}:{target.port}/" for scheme in schemes]
    try:
        return [parse_url(text) for text in texts]
    except MalformedUrl as error:
        raise BadInput(f"target.url: {error}") from error


async def _accepts(egress: Egress, address: str, port: int) -> bool:
    """Whether the port takes a connection at all, whatever it speaks."""
    try:
        sock = await egress.connect(address, port)
    except OSError:
        return False
    sock.close()
    return True


async def _describe(client: WebClient, answer: Answer) -> dict[str, object]:
    page = read_page(answer.text) if answer.is_html else Page()
    redirects, final = await _follow(client, answer)
    length = answer.headers.get("content-length", "")
    return {
        "url": str(answer.url),
        "scheme": answer.url.scheme,
        "host": answer.url.host,
        "port": answer.url.port,
        "path": answer.url.path,
        "status": answer.status,
        "title": page.title,
        "server": answer.headers.get("server"),
        "content_type": answer.headers.get("content-type"),
        "content_length": int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None,
        "headers": dict(list(answer.headers.items())[:100]),
        "redirects": redirects,
        "final_url": str(final),
        "technologies": find_technologies(answer, page),
        "body_sha256": hashlib.sha256(answer.body).hexdigest(),
        "favicon_sha256": await _hash_icon(client, answer, page),
        "tls": describe(answer.tls, utc_now()) if answer.tls else None,
        "response_ms": answer.elapsed_ms,
    }


async def _follow(client: WebClient, answer: Answer) -> tuple[list[dict[str, object]], Url]:
    """Where redirects lead: the hops that answered with one, and the URL where following ended."""
    hops: list[dict[str, object]] = []
    while len(hops) < MAX_REDIRECTS and (onward := _redirect_of(answer)) is not None:
        hops.append({"url": str(answer.url), "status": answer.status})
        try:
            answer = await client.get(onward, max_body=0)
        except (NoAnswer, Refused, NoVerdict):
            break
    return hops, answer.url


def _redirect_of(answer: Answer) -> Url | None:
    location = answer.headers.get("location")
    if answer.status not in _REDIRECTS or not location:
        return None
    try:
        return parse_url(urljoin(str(answer.url), location.strip()))
    except ValueError:
        return None


async def _hash_icon(client: WebClient, answer: Answer, page: Page) -> str | None:
    icon = next(
        (
            tag.attributes.get("href", "")
            for tag in page.tags
            if tag.name == "link" and "icon" in tag.attributes.get("rel", "").lower().split()
        ),
        "/favicon.ico",
    )
    try:
        url = parse_url(urljoin(str(answer.url), icon.strip()))
        if url.origin != answer.url.origin:
            return None
        found = await client.get(url, _MAX_ICON_BYTES)
    except (ValueError, NoAnswer):
        return None
    if found.status != 200 or found.is_html or found.is_cut or not found.body:
        return None
    return hashlib.sha256(found.body).hexdigest()


def main() -> int:
    """Runs the probe on fd 0 and fd 1."""
    return serve_stream(TOOLS["webprobe"], run_job)


if __name__ == "__main__":
    sys.exit(main())
