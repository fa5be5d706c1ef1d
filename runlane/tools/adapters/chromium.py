"""chromium: a picture of a web service as a browser shows it.

The browser is told that one name leads to one address and that no other name or address leads anywhere, so a
page can make it contact nothing but its own host: no redirect, image or script leads it elsewhere.
"""

import base64
from collections.abc import Sequence
from typing import Final

from runlane.tools.adapters.adapter import (
    Adapter,
    Command,
    Conclusion,
    Each,
    Ended,
    Program,
    Raw,
    Reader,
    ToolJob,
    Workplace,
)
from runlane.tools.adapters.jobs import BadTarget, web_url
from runlane.tools.adapters.options import Options, Whole
from runlane.tools.screenshot import MAX_PNG_BYTES

_PICTURE: Final = "page.png"
_LEADS_AWAY: Final = ("net::ERR_NAME_NOT_RESOLVED", "net::ERR_ABORTED", "net::ERR_BLOCKED")
"""How it says that a page leads to another host, or to nothing that can be shown."""

_FAILED: Final = "Page load failed: "


def take_picture(job: ToolJob, options: Options, place: Workplace) -> tuple[Command, Reader]:
    """One page with a fresh profile; the picture lies in the private folder."""
    url = web_url(job)
    if job.address is None:
        raise BadTarget("an address is needed")
    address = f"[{job.address}]" if ":" in job.address else job.address
    width, height = options.whole("width", 1_280), options.whole("height", 800)
    argv = (
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--disable-extensions", "--disable-default-apps", "--no-first-run", "--no-default-browser-check"),
        *("--hide-scrollbars", "--mute-audio", "--ignore-certificate-errors", "--deny-permission-prompts"),
        *("--webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-quic", "--no-proxy-server"),
        "--js-flags=--max-old-space-size=512",
        f"--host-resolver-rules=MAP {job.host} {address},MAP * ~NOTFOUND",
        f"--user-data-dir={place.folder}/profile",
        f"--disk-cache-size={16 * 1024 * 1024}",
        f"--screenshot={place.folder}/{_PICTURE}",
        f"--window-size={width},{height}",
        f"--timeout={options.whole('page_s', 20) * 1_000}",
        *("--", url),
    )
    return Command(argv, output=_PICTURE), _Picture(url)


class _Picture:
    def __init__(self, url: str) -> None:
        self._url = url

    def feed(self, _line: bytes) -> Sequence[Raw]:
        return ()

    def conclude(self, ended: Ended) -> Conclusion:
        coverage = {"url": self._url}
        failure = ended.stderr.rpartition(_FAILED)[2].split("\n")[0] if _FAILED in ended.stderr else None
        if failure is not None and failure.startswith(_LEADS_AWAY):
            return Conclusion(complete=True, coverage=coverage, note=f"no picture: {failure[:100]}")
        if ended.code or not ended.output:
            return Conclusion(failure=failure or f"exit code {ended.code}, no picture")
        if len(ended.output) > MAX_PNG_BYTES:
            return Conclusion(
                complete=True, reachable=True, coverage=coverage, note="the picture is too large"
            )
        record = {"url": self._url, "png": base64.b64encode(ended.output).decode()}
        return Conclusion(complete=True, reachable=True, coverage=coverage, records=(record,))


ADAPTER: Final = Adapter(
    programs=(
        Program(
            "chromium",
            ("chromium", "--version"),
            r"(?:Chromium|Google Chrome|HeadlessChrome)[^\d]*([\d.]+)",
            others=("chromium-headless-shell", "chromium-browser", "google-chrome"),
        ),
    ),
    schema={"width": Whole(200, 4_000), "height": Whole(200, 4_000), "page_s": Whole(1, 60)},
    way=Each((take_picture,)),
    silence_s=60,
    address_space_bytes=None,
)
