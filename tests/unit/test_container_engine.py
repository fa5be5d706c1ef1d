"""The engine as we ask it: conflicts that it cannot be brought to have by itself, and TLS on the way."""

import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runlane.containers.engine import Engine
from runlane.errors import Refused, Unavailable
from runlane.scan.guard import guarded
from tests.integration.tls_front import certificates
from tests.waiting import until


@dataclass(slots=True)
class Asked:
    """What an engine that has one container was asked for, and what it answers."""

    status: str | None = "running"
    """State of the container; None: it is gone."""
    has_conflict: bool = True
    removed: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def engine_on(context: ssl.SSLContext | None = None) -> Iterator[Asked]:
    asked = Asked()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.endswith("/version"):
                self._answer(200, {"ApiVersion": "1.41"})
            elif "/containers/json" in self.path:
                self._answer(200, [{"Id": "one"}])
            elif asked.status is None:
                self._answer(404, {"message": "No such container"})
            else:
                self._answer(200, {"State": {"Status": asked.status}})

        def do_DELETE(self) -> None:
            if asked.has_conflict:
                self._answer(409, {"message": "conflict"})
            else:
                asked.removed.append(self.path.partition("/containers/")[2].partition("?")[0])
                self._answer(204, None)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, status: int, body: object) -> None:
            text = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    asked.url = f"tcp://localhost:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    engine = await Engine.open(url, 1)
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize("status", ["removing", None])
async def test_container_that_somebody_else_removes_needs_no_removal(status: str | None) -> None:
    with engine_on() as asked:
        asked.status = status
        async with opened(asked.url) as engine:
            await engine.remove("one")


@pytest.mark.parametrize("status", ["running", "dead"])
async def test_container_that_the_engine_does_not_remove_is_not_taken_for_removed(status: str) -> None:
    with engine_on() as asked:
        asked.status = status
        async with opened(asked.url) as engine:
            with pytest.raises(Refused):
                await engine.remove("one")


@pytest.fixture
def mutual_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What an engine asks for that knows its clients; the environment has what they need."""
    authority, chain = certificates(tmp_path)
    for name, source in (("ca.pem", authority), ("cert.pem", chain), ("key.pem", chain)):
        (tmp_path / name).write_bytes(source.read_bytes())
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "of the machine.pem"))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_engine_behind_tls_is_reached_with_the_certificates_of_the_environment(
    mutual_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_on(mutual_tls) as asked:
        async with opened(asked.url) as engine:
            found = await engine.labelled({"a": "b"})
        monkeypatch.delenv("DOCKER_TLS_VERIFY")
        monkeypatch.delenv("DOCKER_CERT_PATH")
        with pytest.raises(Unavailable):
            await Engine.open(asked.url, 1)

    assert found == ["one"]


async def test_guard_of_a_killed_worker_reaches_an_engine_behind_tls(mutual_tls: ssl.SSLContext) -> None:
    with engine_on(mutual_tls) as asked:
        asked.has_conflict = False
        async with guarded(asked.url, "incarnation"):
            pass  # ends without a word that all is clear, as one that is killed
        await until(lambda: asked.removed)
        # it looks once more, for what was made late
        await until(lambda: len(asked.removed) > 1)

    assert set(asked.removed) == {"one"}
