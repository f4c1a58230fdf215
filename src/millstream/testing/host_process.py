"""The test's side of a host: starts it, asks it for processes, and talks to each of them.

One thread reads what all of them send. What a test is asked to decide is decided on a second
thread, in the order of its coming, so that a test may use the cluster while it decides.
"""

from __future__ import annotations

import array
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import millstream
from millstream.platform import make_selector
from millstream.testing.errors import TestBrokerError
from millstream.testing.frames import READ_BYTES, Frame, Unpacker, pack

START_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0


class Channel:
    """A socket to another process: commands out, answers and events in."""

    def __init__(self, sock: socket.socket, on_event: Callable[[Frame], None]) -> None:
        self.socket = sock
        self._on_event = on_event
        self._frames = Unpacker()
        self._lock = threading.Lock()
        self._next = 0
        self._asked: dict[int, Future[Any]] = {}
        self._descriptors: list[int] = []
        self.is_closed = False

    def ask(self, command: str, **arguments: Any) -> Future[Any]:
        """Send a command; the future is its answer."""
        answer: Future[Any] = Future()
        with self._lock:
            if self.is_closed:
                answer.set_exception(TestBrokerError("the process has ended"))
                return answer
            self._next += 1
            self._asked[self._next] = answer
            frame = pack({"id": self._next, "do": command, **arguments})
            with suppress(OSError):  # it has ended: the thread that reads fails what was asked
                self.socket.sendall(frame)
        return answer

    def send(self, frame: Frame) -> None:
        """Send what wants no answer."""
        with self._lock, suppress(OSError):
            if not self.is_closed:
                self.socket.sendall(pack(frame))

    def read(self) -> bool:
        """Read what is there, on the thread that reads; False at the end."""
        try:
            received, ancillary, _, _ = self.socket.recvmsg(
                READ_BYTES, socket.CMSG_SPACE(64), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except OSError:
            received, ancillary = b"", []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array.array("i")
                found.frombytes(data[: len(data) - len(data) % found.itemsize])
                self._descriptors += found
        if not received:
            return False
        for frame in self._frames.take(received):
            self._take(frame)
        return True

    def close(self) -> None:
        """Close; what was asked fails."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            asked, self._asked = self._asked, {}
            self.socket.close()
        for each in asked.values():
            each.set_exception(TestBrokerError("the process has ended"))

    def _take(self, frame: Frame) -> None:
        number = frame.get("id")
        if number is None:
            self._on_event(frame)
            return
        with self._lock:
            answer = self._asked.pop(number)
        if "error" in frame:
            answer.set_exception(TestBrokerError(frame["error"]))
        elif "with_descriptor" in frame:
            answer.set_result((frame["ok"], self._descriptors.pop(0)))
        else:
            answer.set_result(frame["ok"])


class HostedProcess:
    """A broker or a keeper that the host has forked."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.process_id = 0
        self.endpoints: list[tuple[str, str, int]] = []
        self.code: int | None = None
        """Its exit code once it has ended; below 0 the signal that ended it."""
        self.ended = threading.Event()
        self.is_paused = False
        self._listening = threading.Event()
        self.channel: Channel | None = None

    def wait_listening(self) -> None:
        """Return once it listens; TestBrokerError with the end of its log where it does not."""
        if not self._listening.wait(START_TIMEOUT_S) or not self.endpoints_known:
            how = "ended" if self.ended.is_set() else "does not listen"
            raise TestBrokerError(f"{self.name} {how}; its log:\n{self.log_text()[-4000:]}")

    @property
    def endpoints_known(self) -> bool:
        """True once it has said where it listens."""
        return not self.ended.is_set() and self._listening.is_set()

    def log_text(self, position: int = 0) -> str:
        """Return what it has logged, from a position in bytes on."""
        try:
            return self.log.read_bytes()[position:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def call(self, command: str, **arguments: Any) -> Any:
        """Have a broker do something, and return its answer."""
        if self.is_paused:
            raise TestBrokerError(f"{self.name} is paused and answers nothing: resume it first")
        if self.channel is None or self.ended.is_set():
            raise TestBrokerError(f"{self.name} does not run: start it first")
        return wait_for(self.channel.ask(command, **arguments), f"{self.name} does not answer")

    def listens(self, endpoints: list[tuple[str, str, int]]) -> None:
        """Take note of where it listens."""
        self.endpoints = endpoints
        self._listening.set()

    def has_ended(self, code: int) -> None:
        """Take note of its end, which the host has seen."""
        self.code = code
        self.ended.set()
        self._listening.set()


_ToDecide: TypeAlias = "tuple[HostedProcess, Frame] | threading.Event | None"
"""What a process asks or tells; an event that is set when its turn comes; None is the end."""


class HostProcess:
    """The host, and the threads that serve it. ``decide`` is called with what a process asks the
    test, on a thread of its own.
    """

    def __init__(self, *, is_cluster: bool, decide: Callable[[HostedProcess, Frame], None]) -> None:
        self._decide = decide
        self._owner = os.getpid()
        self._processes: dict[int, HostedProcess] = {}
        self._ended_early: dict[int, int] = {}
        self._lock = threading.Lock()
        self._selector = make_selector()
        self._woken, self._waker = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._directory: Future[str] = Future()
        self._to_decide: queue.SimpleQueue[_ToDecide] = queue.SimpleQueue()
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the host
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "millstream.testing.host", str(theirs.fileno())),
                    *(["cluster"] if is_cluster else []),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**os.environ, "PYTHONPATH": _python_path()},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the test
            )
        self._control = Channel(ours, self._host_event)
        self._selector.register(ours, selectors.EVENT_READ, self._control)
        self._threads = [
            threading.Thread(target=self._read, name="kafka-test-read", daemon=True),
            threading.Thread(target=self._decide_all, name="kafka-test-decide", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def process_id(self) -> int:
        """The id of the host's process."""
        return self._process.pid

    @property
    def directory(self) -> Path:
        """The directory of this host, removed with it."""
        return Path(wait_for(self._directory, f"the host of the brokers: {self._errors_text()}"))

    def start(self, hosted: HostedProcess, kind: str, **arguments: Any) -> None:
        """Start a process; it is known by its id when this returns."""
        hosted.process_id, descriptor = wait_for(
            self._control.ask(
                "start", kind=kind, name=hosted.name, log=str(hosted.log), **arguments
            ),
            f"{hosted.name} cannot be started",
        )
        channel = Channel(
            socket.socket(fileno=descriptor),
            lambda frame: self._event(hosted, frame),
        )
        with self._lock:
            self._processes[hosted.process_id] = hosted
            early = self._ended_early.pop(hosted.process_id, None)
        hosted.channel = channel
        self._selector.register(channel.socket, selectors.EVENT_READ, channel)
        if early is not None:
            hosted.has_ended(early)

    def signal(self, hosted: HostedProcess, number: int) -> None:
        """Send a signal to a process that runs; the host knows that it is still the same one."""
        if hosted.process_id and not hosted.ended.is_set():
            answer = self._control.ask("signal", process=hosted.process_id, signal=int(number))
            wait_for(answer, f"{hosted.name} cannot be signalled")

    def close(self) -> None:
        """End the host and everything that it has started, and wait until its files are gone."""
        if os.getpid() != self._owner:  # a fork of the test: the host is not its own
            return
        with suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._to_decide.put(None)
        with suppress(OSError):
            self._waker.send(b"x")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_STOP_TIMEOUT_S)
        for each in self._processes.values():
            if each.channel is not None:
                each.channel.close()
        self._control.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()
        self._errors.close()

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                channel = key.data
                if channel is None:
                    if b"x" in self._woken.recv(4096):
                        return
                    continue
                if not channel.read():
                    self._selector.unregister(channel.socket)
                    channel.close()
                    if channel is self._control and not self._directory.done():
                        self._directory.set_exception(TestBrokerError("the host has ended"))

    def _decide_all(self) -> None:
        while (found := self._to_decide.get()) is not None:
            if isinstance(found, threading.Event):
                found.set()
            else:
                self._decide(*found)

    def _event(self, hosted: HostedProcess, frame: Frame) -> None:
        if frame["event"] == "listening":
            hosted.listens([tuple(each) for each in frame["endpoints"]])
        else:
            self._to_decide.put((hosted, frame))

    def drain(self) -> None:
        """Return once everything that was told before has been dealt with."""
        reached = threading.Event()
        self._to_decide.put(reached)
        reached.wait(_ANSWER_TIMEOUT_S)

    def _host_event(self, frame: Frame) -> None:
        if frame["event"] == "ready":
            self._directory.set_result(frame["directory"])
            return
        with self._lock:
            hosted = self._processes.get(frame["process"])
            if hosted is None:
                self._ended_early[frame["process"]] = frame["code"]
                return
        hosted.has_ended(frame["code"])

    def _errors_text(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]


def wait_for(answer: Future[Any], what: str) -> Any:
    """Return an answer; TestBrokerError where it fails or does not come."""
    try:
        return answer.result(_ANSWER_TIMEOUT_S)
    except FutureTimeoutError:
        raise TestBrokerError(f"{what} for {_ANSWER_TIMEOUT_S:g} s") from None
    except TestBrokerError as error:
        raise TestBrokerError(f"{what}: {error}") from None


def _python_path() -> str:
    """Return `PYTHONPATH` with this installation first: the host runs the code of the test."""
    here = str(Path(millstream.__file__).parents[1])
    given = os.environ.get("PYTHONPATH")
    return here if not given else os.pathsep.join([here, given])
