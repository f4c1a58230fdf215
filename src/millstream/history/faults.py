"""Shell commands that break and mend a cluster while a load runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

_OUTPUT: Final = 2_000
_LONGEST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One command that was run; times are seconds since the load began."""

    command: str
    began_s: float
    ended_s: float
    exit_code: int | None
    """None for one that had not ended after five minutes, and was ended."""
    output: str


class Faults:
    """Runs commands in turn, ``every`` so many seconds after the one before has ended.

    A command that runs when the load ends is waited for: whoever kills a broker in it starts the
    broker again in it.
    """

    def __init__(
        self, commands: Sequence[str], every: float, environment: Mapping[str, str]
    ) -> None:
        self._commands = commands
        self._every = every
        self._environment = environment
        self._began = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self.done: list[Fault] = []

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._commands:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._commands:
            self._thread.join(_LONGEST_S + 30)

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._every):
            self.done.append(self._one(self._commands[number % len(self._commands)]))
            number += 1

    def _one(self, command: str) -> Fault:
        began = time.monotonic() - self._began
        code: int | None
        # A file and not a pipe: a broker that the command starts in the background keeps it open.
        with tempfile.TemporaryFile() as told:
            try:
                code = subprocess.run(
                    command,
                    shell=True,
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    timeout=_LONGEST_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
            told.seek(0)
            output = told.read(_OUTPUT).decode(errors="replace")
        ended = time.monotonic() - self._began
        return Fault(command, round(began, 3), round(ended, 3), code, output)
