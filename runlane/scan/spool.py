"""Results on disk that the API has not taken yet: they outlive the process that made them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import orjson
import structlog

from runlane.private_files import write_private
from runlane.scan.wire import Member

log = structlog.get_logger(__name__)

_SUFFIX: Final = ".result"
_HEADER_BYTES: Final = 524_288
"""A delivery's header stays below the size of request that the API takes."""


@dataclass(frozen=True, slots=True)
class Package:
    """One delivery of results: a JSON header that says how each job ended, and a body with what was found."""

    header: bytes
    body: bytes | None
    """NDJSON, one line for each job that found something; None if none did."""

    @property
    def fields(self) -> dict[str, object]:
        """The header as an object."""
        value: dict[str, object] = orjson.loads(self.header)
        return value

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return len(self.header) + 1 + len(self.body or b"")


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """What all results of a batch have in common."""

    dispatch_id: str
    incarnation: str
    """The one that claimed the jobs; a later life of the worker delivers in its name."""
    category: str
    tool_version: str


def pack(identity: BatchIdentity, members: Sequence[Member]) -> list[Package]:
    """Packs results for delivery: one package, or more if the header would be too large for a request."""
    packages: list[Package] = []
    group: list[Member] = []
    lines: list[bytes] = []
    size = 0
    for member in members:
        line = orjson.dumps(_header_of(member, identity.tool_version))
        if group and size + len(line) > _HEADER_BYTES:
            packages.append(_package(identity, group, lines))
            group, lines, size = [], [], 0
        group.append(member)
        lines.append(line)
        size += len(line)
    return [*packages, _package(identity, group, lines)] if group else packages


def _package(identity: BatchIdentity, members: Sequence[Member], lines: Sequence[bytes]) -> Package:
    header = orjson.dumps(
        {
            "dispatch_id": identity.dispatch_id,
            "incarnation": identity.incarnation,
            "category": identity.category,
            "members": [orjson.Fragment(line) for line in lines],
        }
    )
    found = [_body_line(member) for member in members if member.records]
    return Package(header, b"".join(found) if found else None)


def _header_of(member: Member, tool_version: str) -> dict[str, object]:
    return {
        "job_id": member.job_id,
        "attempt": member.attempt,
        "outcome": member.outcome,
        "error": member.error,
        "complete": member.complete,
        "reachable": member.reachable,
        "coverage": member.coverage,
        "argv": member.argv or None,
        "tool_version": tool_version or None,  # nothing was run
    }


def _body_line(member: Member) -> bytes:
    start = b'{"job":%b,"attempt":%d,"records":[' % (orjson.dumps(member.job_id), member.attempt)
    return start + b",".join(member.records) + b"]}\n"


class Spool:
    """A folder of packages, bounded. Files are whole or not there."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    async def put(self, package: Package) -> Path | None:
        """Keeps a package; None if there is no room or the disk refuses it (both logged)."""
        return await asyncio.to_thread(self._put, package)

    def _put(self, package: Package) -> Path | None:
        used = sum(path.stat().st_size for path in self._folder.glob(f"*{_SUFFIX}"))
        if used + package.size_bytes > self._most_bytes:
            log.error("spool_full", used_bytes=used, refused_bytes=package.size_bytes)
            return None
        path = self._folder / f"{uuid4().hex}{_SUFFIX}"
        try:
            write_private(path, package.header + b"\n" + (package.body or b""))
        except OSError as error:
            log.error("spool_write_failed", error=str(error))  # noqa: TRY400  # the text says it all
            return None
        return path

    async def waiting(self) -> list[Path]:
        """Packages in the folder, oldest first."""
        return await asyncio.to_thread(self._waiting)

    def _waiting(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)

    async def load(self, path: Path) -> Package | None:
        """Reads a package; one that cannot be read as one is removed and None is returned."""
        content = await asyncio.to_thread(path.read_bytes)
        header, _, body = content.partition(b"\n")
        try:
            value: object = orjson.loads(header)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            log.error("spool_file_unreadable", file=path.name)
            self.remove(path)
            return None
        return Package(header, body or None)

    def remove(self, path: Path) -> None:
        """Forgets a package that was taken or refused."""
        path.unlink(missing_ok=True)
