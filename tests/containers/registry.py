"""A registry of images that holds one, or that answers nothing: what a pull by digest talks to."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(slots=True)
class Registry:
    """Where it is, and the digest of its image."""

    address: str
    digest: str
    asked: threading.Event = field(default_factory=threading.Event)
    """Set when somebody has asked for something."""
    answers: threading.Event = field(default_factory=threading.Event)
    """Nothing is answered before it is set."""

    @property
    def image(self) -> str:
        """Repository of the image."""
        return f"{self.address}/tools/echo"


@contextmanager
def registry(program: Path, *, is_answering: bool) -> Iterator[Registry]:
    """Serves an image that holds one program as /bin/sh."""
    blobs, digest = _image(program)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(blobs))
    made = Registry(f"127.0.0.1:{server.server_address[1]}", digest)
    server.registry = made  # type: ignore[attr-defined]  # its handlers find it there
    if is_answering:
        made.answers.set()
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield made
    finally:
        made.answers.set()
        server.shutdown()
        serving.join()
        server.server_close()


def _handler_of(blobs: dict[str, tuple[str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made: Registry = self.server.registry  # type: ignore[attr-defined]  # see above
            made.asked.set()
            made.answers.wait()
            kind, body = blobs.get(self.path.rsplit("/", 1)[-1], ("text/plain", b""))
            self.send_response(200 if body or self.path == "/v2/" else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  # its name there

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    return Handler


def _image(program: Path) -> tuple[dict[str, tuple[str, bytes]], str]:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.add(program, "bin/sh")
    layer = gzip.compress(tar.getvalue(), compresslevel=1, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(tar.getvalue())]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _entry("application/vnd.docker.container.image.v1+json", config),
            "layers": [_entry("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
        }
    ).encode()
    kinds = {MANIFEST_TYPE: manifest, "application/octet-stream": layer}
    blobs = {_digest(body): (kind, body) for kind, body in kinds.items()}
    blobs[_digest(config)] = ("application/octet-stream", config)
    return blobs, _digest(manifest)


def _entry(kind: str, body: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(body), "digest": _digest(body)}


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
