"""Runs the processes of one machine: a keeper, then brokers; starts again what ends, stops all.

::

    starting --every broker listens--> serving --SIGTERM, Ctrl-C--> stopping --all have ended--> end
        \\--one of them ends--> stopping, and the start fails with its last line

While it serves, a process that ends is started again, at once the first time and then after pauses
that double (:class:`Restarts`). A stop is rolling: one broker after the other, so that each moves
its leaderships to those that are left, the keeper last. A second signal stops those that are left
at once. One thread, which waits for output of the processes, for their ends and for signals.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Final, Protocol

from millstream.model.errors import MillstreamError
from millstream.platform import before_exec, end_with_this_process, make_selector, widen_pipe

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
STEADY_S: Final = 30.0
"""A process that has run so long before it ended is started again at once."""
STOP_TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.1
"""How often a log that takes nothing is tried again."""
_PIPE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 64 << 10
_MAX_LINE: Final = 16 << 10
_LISTENING: Final = re.compile(rb"listening on ([^\s,]+)")


class StartFailedError(MillstreamError):
    """A process ended before all of them were ready; the text is its last line."""


@dataclass(slots=True)
class Restarts:
    """When a process that has ended is started again. Pure; times are monotonic seconds."""

    pause_s: float = 0.0
    """The pause before the next start."""

    def after(self, ran_s: float) -> float:
        """Return for how long to wait after a run of ``ran_s``."""
        if ran_s >= STEADY_S:
            self.pause_s = 0.0
        pause_s = self.pause_s
        self.pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * pause_s))
        return pause_s


@dataclass(frozen=True, slots=True)
class Program:
    """One process: its name in the log and its command. ``command(address)`` is given the address
    on which it listened before, "" at the first start.
    """

    name: str
    command: Callable[[str], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    core: int | None = None
    """The core that it is pinned to."""


class Outlet(Protocol):
    """Where lines go. Nothing here blocks or fails (``log_outlet.LogOutlet``)."""

    def write(self, text: str) -> object:
        """Write or keep one line with its end."""

    def flush(self) -> bool:
        """Write what can be written now; True when something is left."""


class Watcher(Protocol):
    """Tells others of the processes."""

    def close(self) -> None:
        """Tell nothing more."""


class Child:
    """A program and its process, one after the other."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.address = ""
        """Where it listens, once it has said so."""
        self.is_ready = False
        self.last_line = ""
        self.restarts = Restarts()
        self.starts = 0
        """How often it was started."""
        self.due_s: float | None = None
        """When it is to be started again."""
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        self.is_stopping = False
        self.deadline_s = 0.0
        self._owes_hang_up = False
        self._partial = b""

    @property
    def is_running(self) -> bool:
        """True until the end of the process has been seen."""
        return self.process is not None

    def start(self, now_s: float) -> None:
        """Start the process; OSError or SubprocessError when that fails."""
        self.is_ready = False
        self.starts += 1
        self.due_s = None
        self.started_s = now_s
        self._owes_hang_up = False
        self._partial = b""
        self.process = subprocess.Popen(
            list(self.program.command(self.address)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.program.environment},
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops in order
            preexec_fn=before_exec(self.program.core),  # noqa: PLW1509 - there are no other threads
        )
        end_with_this_process(self.process)
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)
            # A supervisor that stands still must not stop who logs meanwhile.
            widen_pipe(pipe.fileno(), _PIPE_BYTES)

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard output and its log."""
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return self.process.stdout, self.process.stderr

    def listens(self, output: bytes) -> bool:
        """Take what it has printed; True when it has just said where it listens."""
        self._partial = (self._partial + output)[-_MAX_LINE:]
        found = _LISTENING.search(self._partial)
        if found is None or b"\n" not in self._partial[found.start() :] or self.is_ready:
            return False
        self.address = found[1].decode(errors="replace")
        self.is_ready = True
        if self._owes_hang_up:
            self.hang_up()
        return True

    def hang_up(self) -> None:
        """Send SIGHUP, once it is ready: before, it would end by it."""
        self._owes_hang_up = not self.is_ready
        if self.is_ready:
            self.send(signal.SIGHUP)

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def terminate(self, now_s: float) -> None:
        """Ask it to stop; it is killed if it has not ended after ``STOP_TIMEOUT_S``."""
        self.due_s = None
        if not self.is_stopping:
            self.is_stopping = True
            self.deadline_s = now_s + STOP_TIMEOUT_S
            self.send(signal.SIGTERM)


NewWatcher = Callable[[selectors.BaseSelector, "Sequence[Child]"], "Watcher | None"]


class Supervisor:
    """Runs a keeper and brokers. ``outlet`` takes lines of their logs."""

    def __init__(
        self,
        keeper: Program,
        brokers: Sequence[Program],
        *,
        outlet: Outlet,
        on_ready: Callable[[Sequence[str]], None],
        passes_hang_up: bool,
        new_watcher: NewWatcher = lambda _, __: None,
        line_of: Callable[[str, str], str] = lambda name, text: f"[{name}] {text}",
    ) -> None:
        """``on_ready`` is called once with the addresses of the brokers. With ``passes_hang_up``
        SIGHUP goes to the brokers; without, it stops everything, unless it is ignored. ``line_of``
        returns how a line of a process is written; ``new_watcher`` is called with the selector,
        whose keys may hold what is to be called, and the processes.
        """
        self._line_of = line_of
        self._new_watcher = new_watcher
        self.keeper = Child(keeper)
        self.brokers = [Child(each) for each in brokers]
        self._all = [self.keeper, *self.brokers]
        self._outlet = outlet
        self._on_ready = on_ready
        self._passes_hang_up = passes_hang_up
        self._selector = make_selector()
        self._lines: dict[int, bytes] = {}
        self._is_serving = False
        self._stops = 0
        self._hang_ups = 0
        self._diagnoses = 0
        self._failure: StartFailedError | None = None

    def run(self) -> None:
        """Run until SIGTERM or SIGINT and until everything has ended. StartFailedError when it does
        not come to serve.
        """
        woken, waker = socket.socketpair()
        with woken, waker, self._selector:
            for each in (woken, waker):
                each.setblocking(False)
            self._selector.register(woken, selectors.EVENT_READ)
            before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
            handlers = self._handle_signals()
            watcher = self._new_watcher(self._selector, self._all)
            try:
                self._run(woken)
            finally:
                if watcher is not None:
                    watcher.close()
                for child in self._all:
                    child.send(signal.SIGKILL)
                    if child.process is not None:
                        self._reap(child)
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before)
        if self._failure is not None:
            raise self._failure

    def _handle_signals(self) -> dict[int, signal._HANDLER]:
        taken = {
            signal.SIGTERM: self._stop_signal,
            signal.SIGINT: self._stop_signal,
            signal.SIGCHLD: lambda *_: None,
            signal.SIGUSR1: self._diagnose_signal,
        }
        if self._passes_hang_up:
            taken[signal.SIGHUP] = self._hang_up_signal
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            taken[signal.SIGHUP] = self._stop_signal
        return {number: signal.signal(number, handler) for number, handler in taken.items()}

    def _stop_signal(self, *_: object) -> None:
        self._stops += 1

    def _diagnose_signal(self, *_: object) -> None:
        self._diagnoses += 1

    def _hang_up_signal(self, *_: object) -> None:
        self._hang_ups += 1

    def _run(self, woken: socket.socket) -> None:
        self._start(self.keeper)
        while any(each.is_running or each.due_s is not None for each in self._all):
            for key, _ in self._selector.select(self._wait_s()):
                if callable(key.data):
                    key.data()
                elif key.fileobj is woken:
                    with suppress(BlockingIOError):
                        woken.recv(4096)
                else:
                    child, is_log = key.data
                    self._take_output(child, key.fd, is_log=is_log)
            self._look()

    def _wait_s(self) -> float | None:
        now_s = time.monotonic()
        times = [each.due_s for each in self._all if each.due_s is not None]
        times += [each.deadline_s for each in self._all if each.is_stopping and each.is_running]
        if self._outlet.flush():
            times.append(now_s + LOOK_S)
        return max(0.0, min(times) - now_s) if times else None

    def _look(self) -> None:
        """Act on what has happened: ends, signals, times that have come."""
        for child in self._all:
            if child.process is not None and child.process.poll() is not None:
                self._ended(child)
        self._pass_signals()
        now_s = time.monotonic()
        if self._stops:
            self._stop(now_s)
        for child in self._all:
            if child.due_s is not None and child.due_s <= now_s:
                self._start(child)
            if child.is_stopping and child.is_running and child.deadline_s <= now_s:
                log.warning("%s has not stopped: it is killed", child.program.name)
                child.deadline_s = now_s + STOP_TIMEOUT_S
                child.send(signal.SIGKILL)

    def _pass_signals(self) -> None:
        while self._hang_ups:
            self._hang_ups -= 1
            for child in self.brokers:
                child.hang_up()
        while self._diagnoses:
            self._diagnoses -= 1
            for child in self.brokers:
                if child.is_ready:  # before, it would end by it
                    child.send(signal.SIGUSR1)

    def _stop(self, now_s: float) -> None:
        """Stop one more broker, or all that are left, then the keeper."""
        for child in self.brokers:
            child.due_s = None
        running = [child for child in self.brokers if child.is_running]
        if not running:
            self.keeper.terminate(now_s)
        elif self._stops > 1 or not self._is_serving:
            for child in running:
                child.terminate(now_s)
        else:
            running[-1].terminate(now_s)

    # --- one process -----------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        try:
            child.start(time.monotonic())
        except (OSError, subprocess.SubprocessError) as error:
            self._not_started(child, error)
            return
        for pipe, is_log in zip(child.pipes, (False, True), strict=True):
            self._lines[pipe.fileno()] = b""
            self._selector.register(pipe, selectors.EVENT_READ, (child, is_log))

    def _not_started(self, child: Child, error: Exception) -> None:
        """The system has no process for it now, or not the core that it is pinned to."""
        name = child.program.name
        if not self._is_serving:
            if self._failure is None:
                self._failure = StartFailedError(f"{name} did not start: {error}")
            self._stops += 1
            return
        pause_s = max(FIRST_PAUSE_S, child.restarts.after(0.0))
        child.due_s = time.monotonic() + pause_s
        log.warning("%s cannot be started, and is tried again in %g s: %s", name, pause_s, error)

    def _take_output(self, child: Child, descriptor: int, *, is_log: bool) -> None:
        try:
            output = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if not output:
            self._selector.unregister(descriptor)
            return
        if is_log:
            self._take_log(child, descriptor, output)
        elif child.listens(output):
            self._ready(child)

    def _take_log(self, child: Child, descriptor: int, output: bytes) -> None:
        *lines, rest = (self._lines[descriptor] + output).split(b"\n")
        if len(rest) > _MAX_LINE:
            lines.append(rest)
            rest = b""
        self._lines[descriptor] = rest
        for line in lines:
            text = line.decode(errors="replace")
            child.last_line = text or child.last_line
            self._outlet.write(self._line_of(child.program.name, text) + "\n")

    def _ready(self, child: Child) -> None:
        if self._is_serving:
            log.info("%s listens on %s", child.program.name, child.address)
        elif child is self.keeper:
            for broker in self.brokers:
                if not broker.is_running and not self._stops:
                    self._start(broker)
        elif all(each.is_ready for each in self.brokers):
            self._is_serving = True
            self._on_ready([each.address for each in self.brokers])

    def _ended(self, child: Child) -> None:
        ran_s = time.monotonic() - child.started_s
        code = self._reap(child)
        name = child.program.name
        if child.is_stopping:
            if code:
                log.warning("%s %s", name, _why(code))
            return
        last = child.last_line.removeprefix("millstream: serve: ").removeprefix(
            "millstream: keeper: "
        )
        if self._stops and child is not self.keeper:
            return
        if not self._is_serving:
            if self._failure is None:
                self._failure = StartFailedError(f"{name} did not start: {last or _why(code)}")
            self._stops += 1
            return
        pause_s = child.restarts.after(ran_s)
        child.due_s = time.monotonic() + pause_s
        again = f"in {pause_s:g} s" if pause_s else "now"
        log.warning(
            "%s %s, and is started again %s; its last line: %s", name, _why(code), again, last
        )

    def _reap(self, child: Child) -> int:
        """Take the last output of a process that has ended; return its exit code."""
        process = child.process
        assert process is not None
        code = process.wait()
        for pipe, is_log in zip(child.pipes, (False, True), strict=True):
            descriptor = pipe.fileno()
            with suppress(KeyError):  # its end was read
                self._selector.unregister(descriptor)
            with suppress(OSError):
                while is_log and (output := os.read(descriptor, _READ_BYTES)):
                    self._take_log(child, descriptor, output)
            if rest := self._lines.pop(descriptor, b""):
                self._lines[descriptor] = b""
                self._take_log(child, descriptor, rest + b"\n")
                del self._lines[descriptor]
            pipe.close()
        child.process = None
        child.is_ready = False
        return code


def _why(code: int) -> str:
    """Return how a process has ended."""
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:  # most real-time signals have no name
            return f"was ended by signal {-code}"
    return f"ended with code {code}"
