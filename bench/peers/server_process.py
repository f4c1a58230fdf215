"""A process of ours that prints `listening on HOST:PORT` in its first line of output."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from types import TracebackType

from bench.peers.subject import SubjectFailedError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class ServerProcess:
    """Starts a command with its output in a file, learns its port, and stops it again."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.command = command
        self.output = output
        self.host = "127.0.0.1"
        self.port = 0
        self.spawned_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        if self._process is None:
            raise SubjectFailedError(f"not running: {self.command[0]}")
        return self._process.pid

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> ServerProcess:
        """Start and return once the process says where it listens."""
        self.spawn()
        self.wait_until_listening()
        return self

    def spawn(self) -> None:
        """Start the process and return at once; `spawned_at` is the clock just before."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("wb") as output:
            self.spawned_at = time.perf_counter()
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_until_listening(self) -> None:
        """Learn the port; raises `SubjectFailedError` when the process ends or stays silent."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            text = self.output.read_text(encoding="utf-8", errors="replace")
            match = re.search(r"listening on (\S+):(\d+)", text)
            if match:
                self.host, self.port = match[1], int(match[2])
                return
            self.check_alive()
            if time.monotonic() > deadline:
                raise SubjectFailedError(f"silent for {START_TIMEOUT_S:.0f} s: {text[-1500:]}")
            time.sleep(0.005)

    def check_alive(self) -> None:
        """Raise `SubjectFailedError` with the end of its output when the process is gone."""
        if self._process is None or self._process.poll() is not None:
            text = self.output.read_text(encoding="utf-8", errors="replace").strip()
            raise SubjectFailedError(f"ended: {text[-1500:]}")

    def kill(self) -> None:
        """Stop with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop with SIGTERM, or with SIGKILL after a while."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
