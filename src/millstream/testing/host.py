"""The host of brokers under test: one small process that has loaded a broker's code and forks.

A broker that is forked listens after some hundredths of a second, for its code is there already.
The host serves one test process over a socket that it inherits, and ends with it: when the socket
closes, or when its parent is another one than before, it kills what it has started and removes its
directory. Brokers are killed by the system when the host is (Linux), or end when their own socket
to the test closes. A directory whose host was killed together with its test is removed by the next
host that starts.

``python -m millstream.testing.host DESCRIPTOR``
"""

from __future__ import annotations

import array
import faulthandler
import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.platform import end_with_parent, lock_file
from millstream.testing.frames import READ_BYTES, Frame, Unpacker, pack

PREFIX: Final = "millstream-testing-"
LOCK: Final = "host.lock"
_LOOK_S: Final = 1.0


class Host:
    """Starts and signals processes for the test at the other end of ``control``."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._frames = Unpacker()
        self._running: dict[int, str] = {}
        self._is_over = False
        self.directory, self._lock = new_directory(Path(tempfile.gettempdir()))

    def run(self) -> None:
        """Serve until the test is gone."""
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        try:
            self._send({"event": "ready", "directory": str(self.directory)})
            while not self._is_over and os.getppid() == self._parent:
                ready, _, _ = select.select([self._control, woken], [], [], _LOOK_S)
                if woken in ready:
                    woken.recv(4096)
                    self._reap()
                if self._control in ready:
                    self._read()
        finally:
            self._end()

    def _stop(self, *_: object) -> None:
        self._is_over = True

    def _read(self) -> None:
        try:
            received = self._control.recv(READ_BYTES)
        except OSError:
            received = b""
        self._is_over = self._is_over or not received
        for frame in self._frames.take(received):
            try:
                self._take(frame)
            except OSError as error:
                self._send({"id": frame["id"], "error": str(error)})

    def _take(self, frame: Frame) -> None:
        number = frame["id"]
        if frame["do"] == "start":
            self._start(frame)
            return
        process = frame["process"]
        if process in self._running:  # not reaped: the number is still its own
            os.kill(process, frame["signal"])
        self._send({"id": number, "ok": None})

    def _start(self, frame: Frame) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            host = os.getpid()
            process = os.fork()
            if process == 0:
                ours.close()
                self._be_child(frame, theirs, host)
            self._running[process] = frame["name"]
            answer = pack({"id": frame["id"], "ok": process, "with_descriptor": True})
            descriptors = array.array("i", [ours.fileno()])
            self._control.sendmsg(
                [answer], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]
            )

    def _be_child(self, frame: Frame, control: socket.socket, host: int) -> None:
        """Go on as a broker or a keeper; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            end_with_parent(host, signal.SIGKILL)  # also while it is paused, on Linux
            _log_to(frame["log"])
            faulthandler.enable()
            code = _serve(frame, control)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._running:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if self._running.pop(process, None) is not None:
                code = os.waitstatus_to_exitcode(status)
                self._send({"event": "ended", "process": process, "code": code})

    def _send(self, frame: Frame) -> None:
        try:
            self._control.sendall(pack(frame))
        except OSError:
            self._is_over = True

    def _end(self) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self._running:
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def _serve(frame: Frame, control: socket.socket) -> int:
    from millstream.testing.steered_broker import run, run_keeper

    if frame["kind"] == "keeper":
        return run_keeper(frame["directory"], control)
    return run(frame["settings"], control, frame["ahead_ms"], frame["watched"], frame["cut"])


def _log_to(path: str) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(nothing)
    os.close(written)


def new_directory(parent: Path) -> tuple[Path, int]:
    """Make a directory, and hold a lock in it; return both. Directories of which nobody holds the
    lock any more are removed first.
    """
    for left in parent.glob(f"{PREFIX}*"):
        _remove_if_left(left)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    beginning = directory / f".{LOCK}"
    lock = os.open(beginning, os.O_RDWR | os.O_CREAT, 0o600)
    lock_file(lock)
    beginning.rename(directory / LOCK)  # held before anybody can find it
    return directory, lock


def _remove_if_left(directory: Path) -> None:
    with suppress(OSError):
        if directory.stat().st_uid != os.getuid():
            return
        lock = os.open(directory / LOCK, os.O_RDWR)
        try:
            lock_file(lock, waits=False)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(lock)


def _load() -> None:
    """Load what a broker runs, before the first fork."""
    import millstream.server.metadata_backend
    import millstream.sqlite.metadata_store
    import millstream.testing.steered_broker  # noqa: F401 - loaded for the children

    with suppress(ImportError):
        import uvloop  # noqa: F401 - loaded for the children
    gc.collect()
    gc.freeze()


def _load_cluster() -> None:
    import millstream.server.cluster_backend
    import millstream.server.keeper_backend
    import millstream.server.keeper_process
    import millstream.testing.cuts  # noqa: F401 - loaded for the children


def main(arguments: list[str]) -> int:
    """Serve the test whose socket has the descriptor in ``arguments``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    host = Host(control)
    loads: list[Callable[[], None]] = [_load, *([_load_cluster] if arguments[1:] else [])]
    for load in loads:
        load()
    host.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
