"""A real Millstream broker for tests: one process, one port that the system picked.

``with BrokerProcess(directory) as broker:`` starts ``millstream serve`` as a user would, reads the
line that says where it listens, and stops it with SIGTERM. A broker that does not stop cleanly, or
leaves a process behind, fails the test. One that crashes in C writes the Python stack of every
thread into its log first (``faulthandler``); after Python's own end there is none to write.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from millstream import platform

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 90.0

_LISTENING = re.compile(r"listening on (\S+):(\d+)")


class BrokerFailedError(Exception):
    """The broker did not start or did not stop; the text ends with what it printed."""


class BrokerProcess:
    """One broker over one data directory; it can be stopped, killed and started again."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.host = "127.0.0.1"
        self.port = 0
        self.first_line = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect, as ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process."""
        assert self._process is not None, "the broker is not running"
        return self._process

    @property
    def is_running(self) -> bool:
        """True from a start until the broker is stopped or killed."""
        return self._process is not None

    @property
    def log(self) -> str:
        """What the broker wrote to standard error since the first start."""
        path = self.directory / "broker.err"
        return path.read_text(errors="replace") if path.exists() else ""

    def command(self) -> list[str]:
        """Return the command line that starts this broker."""
        overrides = [
            part
            for name, value in self.settings.items()
            for part in ("--override", f"{name}={value}")
        ]
        return [
            *(sys.executable, "-m", "millstream.cli.main", "serve"),
            *("--data-dir", str(self.data_directory), "--host", self.host),
            *("--port", str(self.port), *overrides, *self.arguments),
        ]

    def start(self) -> None:
        """Start the process and wait for its first line. A second start uses the first port."""
        assert self._process is None, "the broker runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == platform.SWITCH or not name.startswith("MILLSTREAM_")
        }
        with (self.directory / "broker.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment | {"PYTHONFAULTHANDLER": "1"} | self.environment,
                cwd=self.directory,
            )
        self.first_line = self._read_first_line()
        found = _LISTENING.search(self.first_line)
        if found is None:
            self.kill()
            raise BrokerFailedError(f"no 'listening on' in {self.first_line!r}\n{self.log[-2000:]}")
        self.port = int(found[2])

    def _read_first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            remaining = deadline - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, remaining))
            piece = os.read(self._process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                break
            line += piece
        return line.decode(errors="replace").partition("\n")[0]

    def stop(self) -> None:
        """Stop with SIGTERM; raise BrokerFailedError unless it ends with 0 and leaves nothing."""
        if self._process is None:
            return
        children = self._children()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailedError(f"SIGTERM did not stop it\n{self.log[-2000:]}") from None
        code = self._forget()
        left = [child for child in children if child.is_running()]
        for child in left:
            child.kill()
        if code != 0 or left:
            raise BrokerFailedError(f"exit code {code}, left behind {left}\n{self.log[-8000:]}")

    def kill(self) -> None:
        """End the process with SIGKILL, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _children(self) -> list[psutil.Process]:
        try:
            found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return found

    def _forget(self) -> int:
        process, self._process = self.process, None
        if process.stdout is not None:
            process.stdout.close()
        return process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
