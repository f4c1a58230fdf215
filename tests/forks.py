"""Commands of Millstream that tests start as processes, forked from one that has loaded the code.

Most of what such a process costs is Python's start and the import of some hundred modules: half a
second of CPU or more, for a broker and for a command that ends at once, a thousand times in a whole
run. Here the first that a worker of pytest starts loads all of it, and each further one is a fork::

    worker --words, descriptors 0 to 2, directory, environment--> loaded process
                                                                      | fork
    worker <------------------ number of the process ------------- helper (ends at once)
       |                                                              | fork
       +--- parent of, as soon as the helper has ended -------------> `serve`, `topic list`, ...

What is forked is a child of the worker as any other process: signals, exit codes and what it leaves
behind are its own. A test of what a fresh interpreter does has the marker ``own_interpreter``, and
``pytest --own-interpreters`` gives one to all tests. On systems other than Linux all have one.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

MODULE: Final = "millstream.cli.main"
COMMAND: Final = (sys.executable, "-m", MODULE)
_REQUEST_BYTES: Final = 1 << 20
_PR_SET_CHILD_SUBREAPER: Final = 36
_READ_WHILE_LOADING: Final = ("PYTHON", "LC_", "LANG", "MILLSTREAM_PORTABLE", "MILLSTREAM_KERNEL")
"""Variables that Python and modules look at when they begin; a process for which they are others
than the worker's is not forked."""
_FAULT_HANDLER: Final = "PYTHONFAULTHANDLER"
_LOADED: Final = (
    "millstream.cli.app",
    "millstream.cli.serve",
    "millstream.server.lifecycle",
    "millstream.server.metadata_backend",
    "millstream.server.cluster_backend",
    "millstream.server.keeper_process",
    "millstream.sqlite.metadata_store",
    "millstream.client",
    "uvloop",
)
"""What brokers and commands import sooner or later, beside the modules of the commands; nothing
that starts a thread."""

_execute_child: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class LoadedProcess:
    """The worker's side: one process with the code, started when it is first needed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def began_as(self, environment: Mapping[str, str]) -> bool:
        """Tell whether a process with this environment would load what is loaded here."""
        return _read_while_loading(environment) == _read_while_loading(self._environment)

    def fork(self, request: bytes, descriptors: Sequence[int]) -> int:
        """Fork a child of this process; return its number."""
        with self._lock:
            control = self._started()
            _adopt_orphans(True)
            try:
                socket.send_fds(control, [request], list(descriptors))
                answer = control.recv(64)
            finally:
                _adopt_orphans(False)
        if not answer:
            raise RuntimeError("the process that forks has ended")
        return int(answer)

    def _started(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=Path(__file__).parents[1],
                    env=self._environment,
                )
        return self._control

    def close(self) -> None:
        """End it. It ends by itself where the worker, which has the other end, is killed."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()
            self._control = self._process = None


_loaded = LoadedProcess(os.environ)
may_fork = False
"""True while the processes of the running test may be forked."""


def install() -> None:
    """Have ``subprocess`` fork the commands of Millstream in this process."""
    if sys.platform == "linux":
        subprocess.Popen._execute_child = _fork_or_execute  # type: ignore[attr-defined]


def close() -> None:
    """End what is loaded."""
    _loaded.close()


def _fork_or_execute(process: Any, arguments: Any, *rest: Any) -> None:
    """Stand in for ``Popen._execute_child``; ``rest`` is as Python 3.11 to 3.13 have it."""
    (_, preexec, _, pass_fds, cwd, env, _, _, shell, *pipes) = rest[:15]
    in_child = [
        number if pipe == -1 else pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))
    ]
    session = rest[-2]
    environment = os.environ if env is None else env
    words = _words(arguments)
    if (
        words is None
        or not may_fork
        or not (preexec is None and not pass_fds and not shell)
        or any(map(os.isatty, in_child))
        or not _loaded.began_as(environment)
    ):
        _execute_child(process, arguments, *rest)
        return
    request = {
        "words": words,
        "cwd": os.fspath(cwd or os.getcwd()),
        "environment": dict(environment),
        "session": bool(session),
    }
    process.pid = _loaded.fork(json.dumps(request).encode(), in_child)
    process._child_created = True
    process._close_pipe_fds(*pipes)


def _words(arguments: Any) -> list[str] | None:
    """Return what follows the program's name; None where it is another program."""
    if not isinstance(arguments, list | tuple):
        return None
    given = [os.fspath(each) for each in arguments]
    return given[len(COMMAND) :] if tuple(given[: len(COMMAND)]) == COMMAND else None


def _read_while_loading(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_WHILE_LOADING) and name != _FAULT_HANDLER
    }


def _adopt_orphans(does: bool) -> None:
    """Let this process be the parent of processes below it whose own parent has ended, or not."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(does), 0, 0, 0)


def serve(control: socket.socket) -> list[str]:
    """Fork for the worker at the other end until it is gone; in a fork, return its words."""
    while True:
        received, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 3)
        if not received:
            sys.exit(0)
        request = json.loads(received)
        reading, writing = os.pipe()
        helper = os.fork()
        if helper == 0:
            forked = os.fork()
            if forked == 0:
                for each in (control.detach(), reading, writing):
                    os.close(each)
                _become(request, descriptors)
                return list(request["words"])
            os.write(writing, str(forked).encode())
            os._exit(0)
        for each in (writing, *descriptors):
            os.close(each)
        number = os.read(reading, 64)
        os.close(reading)
        os.waitpid(helper, 0)
        control.send(number)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Set up what a process gets from whoever starts it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["cwd"]
    sys.argv = [str(sys.modules[MODULE].__file__), *request["words"]]
    if os.environ.get(_FAULT_HANDLER):
        faulthandler.enable()


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in (MODULE, *_LOADED):
        with suppress(ImportError):
            import_module(name)
    sys.modules["millstream.cli.app"].build([])  # imports the module of each command
    assert threading.active_count() == 1, "a fork has only the thread that forks"
    gc.collect()
    gc.freeze()
    try:
        words = serve(control)
    except KeyboardInterrupt:
        return 0
    return int(sys.modules[MODULE].main(words))


if __name__ == "__main__":
    sys.exit(main())
