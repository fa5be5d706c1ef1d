"""The launcher: a small resident process that starts the tools of a scan worker and outlives none of them.

The worker's own process runs an event loop, threads and a Temporal client; forking it is neither safe nor
cheap. The launcher has one thread and has imported the probes, so a batch of probe jobs costs a fork instead
of an interpreter. When the worker dies, however it dies, the socket ends and every process group is killed.

Worker and launcher speak JSON Lines over a socket pair. To the launcher, with three descriptors (stdin,
stdout, stderr) attached: `{"id", "probe" | "argv", "attempt", "env", "cwd", "wall_s", "limits"}`; and
`{"kill": id}`. From it: `{"id", "pid"}` or `{"id", "error"}`, then once `{"id", "exit", "wall_exceeded"}`,
exit being -n for signal n.
"""

import errno
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from runlane.probes.programs import PROBES, serve, warm_up
from runlane.scan import confine

TERM_GRACE_S: Final = 2.0
"""Seconds between SIGTERM and SIGKILL for a child that exceeded its wall limit."""

_EXIT_CRASHED: Final = 70
_EXIT_NOT_STARTED: Final = 127
_CHUNK: Final = 65_536
_MAX_FDS: Final = 64


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What to start: a probe inside the fork, or a program by its argument list. Exactly one of both."""

    id: int
    attempt: str
    wall_s: float
    probe: str | None = None
    argv: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    limits: confine.Limits = field(default_factory=confine.Limits)


@dataclass(slots=True)
class _Running:
    id: int
    pid: int
    attempt: str
    deadline: float
    """Monotonic time of the next signal: SIGTERM, then SIGKILL."""
    is_wall_exceeded: bool = False


class LauncherLoop:
    """The launcher's one loop, over an already connected socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._wakeup_end = socket.socketpair()
        self._pid = os.getpid()
        self._received = b""
        self._descriptors: deque[int] = deque()
        self._unsent = bytearray()
        self._running: dict[int, _Running] = {}
        self._is_open = True

    def run(self) -> None:
        """Serves until the worker has gone or SIGTERM comes, then kills whatever still runs."""
        self._prepare()
        while self._is_open:
            for key, events in self._selector.select(self._next_timeout()):
                if key.fileobj is self._wakeup:
                    self._wakeup.recv(_CHUNK)
                if key.fileobj is self._control and events & selectors.EVENT_READ:
                    self._receive()
                if key.fileobj is self._control and events & selectors.EVENT_WRITE:
                    self._send()
            self._reap()
            self._enforce_wall_limits()
        self._kill_all()

    def _prepare(self) -> None:
        for end in (self._control, self._wakeup, self._wakeup_end):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._selector.register(self._control, selectors.EVENT_READ)

    def _stop(self, *_: object) -> None:
        self._is_open = False

    def _next_timeout(self) -> float | None:
        if not self._running:
            return None
        return max(0.0, min(child.deadline for child in self._running.values()) - time.monotonic())

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, _MAX_FDS)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        self._descriptors.extend(descriptors)
        if not data:
            self._is_open = False
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, message: dict[str, object]) -> None:
        if "kill" in message:
            for child in self._running.values():
                if child.id == message["kill"]:
                    _kill_group(child.pid, signal.SIGKILL)
            return
        descriptors = [self._descriptors.popleft() for _ in range(3)]
        try:
            self._launch(_parse_request(message), descriptors)
        except (OSError, TypeError, ValueError, KeyError) as error:
            self._say({"id": message.get("id"), "error": f"{type(error).__name__}: {error}"})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _launch(self, request: LaunchRequest, descriptors: Sequence[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._become(request, descriptors)
        self._running[pid] = _Running(
            id=request.id,
            pid=pid,
            attempt=request.attempt,
            deadline=time.monotonic() + request.wall_s,
        )
        self._say({"id": request.id, "pid": pid})

    def _become(self, request: LaunchRequest, descriptors: Sequence[int]) -> NoReturn:
        code = _EXIT_CRASHED
        try:
            confine.reset_process()
            confine.enter_own_session(self._pid, request.probe or Path(request.argv[0]).name)
            for end in (self._control, self._wakeup, self._wakeup_end):
                end.detach()  # the objects live on in this copy and must not close numbers that are used anew
            self._selector.close()
            confine.take_descriptors(*descriptors)
            confine.apply(request.limits)
            os.chdir(request.cwd)
            confine.replace_environment(_minimal_environment() | dict(request.env), request.attempt)
            code = serve(request.probe) if request.probe else _exec(request.argv)
            sys.stdout.flush()
        except Exception:  # noqa: BLE001  # outermost frame of the child; it must never return to the loop
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._running.pop(pid, None)
            if child is not None:
                self._end(child, os.waitstatus_to_exitcode(status))

    def _end(self, child: _Running, exit_code: int) -> None:
        # the group outlives its leader: what the tool started and left behind goes now
        _kill_group(child.pid, signal.SIGKILL)
        self._kill_strays()
        self._say({"id": child.id, "exit": exit_code, "wall_exceeded": child.is_wall_exceeded})

    def _kill_strays(self) -> None:
        """Kills adopted processes that left their group, once no living child has their mark."""
        attempts = {child.attempt for child in self._running.values()}
        for pid in _children_of(self._pid):
            if pid not in self._running and confine.mark_of(pid) not in attempts:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _enforce_wall_limits(self) -> None:
        now = time.monotonic()
        for child in self._running.values():
            if child.deadline > now:
                continue
            _kill_group(child.pid, signal.SIGKILL if child.is_wall_exceeded else signal.SIGTERM)
            child.is_wall_exceeded = True
            child.deadline = now + TERM_GRACE_S

    def _kill_all(self) -> None:
        for pid in self._running:
            _kill_group(pid, signal.SIGKILL)
        self._running.clear()
        with suppress(ChildProcessError):
            while True:
                self._kill_strays()
                os.waitpid(-1, 0)  # orphans of what has just died are ours by now, and come next

    def _say(self, message: Mapping[str, object]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._control.send(self._unsent)]
        except BlockingIOError:
            pass  # the worker is slow; wall limits go on being enforced meanwhile
        except ConnectionError:
            self._is_open = False
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._control, events)


def _parse_request(message: dict[str, object]) -> LaunchRequest:
    limits = confine.Limits(**message.pop("limits"))  # type: ignore[arg-type] # a wrong field is a TypeError
    request = LaunchRequest(**message, limits=limits)  # type: ignore[arg-type] # likewise
    if (request.probe is None) == (not request.argv):
        raise ValueError("either a probe or an argument list")
    if request.probe is not None and request.probe not in PROBES:
        raise KeyError(f"no probe {request.probe}")
    return request


def _minimal_environment() -> dict[str, str]:
    """What every tool gets; the launcher itself was started with nothing more."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}


def _exec(argv: Sequence[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; programs expect to die of it
    # looked for here: the system's search blames a folder of PATH that we may not read for what is in none
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0])
    try:
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.execv(path, list(argv))  # noqa: S606  # argument lists, never a shell
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
    return _EXIT_NOT_STARTED


def _kill_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # a child that has not come to lead its group yet; one that has ended is not there either way
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    except PermissionError:
        pass  # only a zombie is left


def _children_of(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/self/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def main() -> int:
    """Runs the launcher on the socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    confine.adopt_orphans()
    warm_up()
    gc.collect()
    gc.freeze()  # children share these pages as long as no collection writes to them
    LauncherLoop(control).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
