"""The demo's broker: `millstream serve` as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

from millstream.cli.child_processes import end_process
from millstream.cli.failures import CommandFailedError

STOP_TIMEOUT_S: Final = 20.0

_LISTENING = re.compile(r"listening on (\S+:\d+)")


class DemoBroker:
    """A context manager around the process; ``bootstrap`` is where clients connect."""

    def __init__(self, working_directory: Path) -> None:
        self.data_directory = working_directory / "data"
        self.first_line = ""
        self.bootstrap = ""
        self._errors = working_directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> DemoBroker:
        command = [sys.executable, "-m", "millstream.cli.main", "serve", "--port", "0"]
        command += ["--data-dir", str(self.data_directory)]
        command += ["--override", "group.initial.rebalance.delay.ms=0"]
        with self._errors.open("w") as errors:
            # In a session of its own: Ctrl-C is for us, and we stop the broker when its clients
            # are done.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline().strip()
        found = _LISTENING.search(self.first_line)
        if found is None:
            self._stop()
            raise CommandFailedError(f"the broker did not start: {self._last_words()}")
        self.bootstrap = found[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        code = self._stop()
        if code != 0 and error is None:
            raise CommandFailedError(f"the broker ended with code {code}: {self._last_words()}")

    def _stop(self) -> int:
        assert self._process is not None
        try:
            return end_process(self._process, STOP_TIMEOUT_S)
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"
