"""Who writes a task of a micro-batch: one attempt at a time, told by files in the checkpoint.

::

    <checkpoint>/millstream-sink/<batch>/<task>-000.claim      the first attempt: host and process
    <checkpoint>/millstream-sink/<batch>/<task>-000.released   it writes no more
    <checkpoint>/millstream-sink/<batch>/<task>-001.claim      the attempt that took over from it

An attempt takes the next number, which only one can. From then on the one before has lost: it looks
before it hands over rows, finds the higher number, stops, waits until what it had handed over is
settled, and releases. The new attempt waits for that before it reads back what is there. An
attempt whose process is known to be dead, because it was on this machine, has released; of one
that says nothing it is taken that after the patience no request of its is under way any more,
because a producer gives up after ``delivery.timeout.ms``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.model.errors import MillstreamError

_POLL_S: Final = 0.1


class SupersededError(MillstreamError):
    """Another attempt at the same task has taken over: this one may not write any more."""


class Claim:
    """One attempt's right to write a task's rows. Make it with :meth:`take`."""

    def __init__(self, directory: Path, task: int, number: int) -> None:
        self._directory = directory
        self._task = task
        self._number = number

    @classmethod
    def take(cls, directory: Path, task: int) -> Claim:
        """Take over from whoever has the task. ``directory`` is that of the micro-batch."""
        directory.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            claim = cls(directory, task, number)
            try:
                claim._write()
            except FileExistsError:
                number += 1
            else:
                return claim

    def check(self) -> None:
        """Raise SupersededError when another attempt has taken over, or the micro-batch is done."""
        taken = self._path(self._number + 1, "claim").exists()
        if taken or not self._path(self._number, "claim").exists():
            raise SupersededError(
                f"attempt {self._number} at task {self._task} of micro-batch "
                f"{self._directory.name} is over: another one has taken its place"
            )

    def release(self) -> None:
        """Say that nothing of this attempt is under way any more."""
        with contextlib.suppress(FileNotFoundError):  # the micro-batch is done and forgotten
            self._path(self._number, "released").touch()

    def wait_for_others(
        self, patience_s: float, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Wait until no earlier attempt can write any more, ``patience_s`` seconds at most.

        Raises SupersededError when this attempt loses the task meanwhile.
        """
        deadline = time.monotonic() + patience_s
        for number in range(self._number):
            while not self._is_over(number) and time.monotonic() < deadline:
                self.check()
                sleep(_POLL_S)

    def _is_over(self, number: int) -> bool:
        if self._path(number, "released").exists():
            return True
        try:
            owner: dict[str, str] = json.loads(self._path(number, "claim").read_text())
        except (FileNotFoundError, ValueError):
            return False
        if owner["host"] != _host():
            return False
        return _started(int(owner["process"])) != owner["started"]

    def _write(self) -> None:
        """Make the claim's file, whole from the start; FileExistsError when the number is taken."""
        target = self._path(self._number, "claim")
        if target.exists():
            raise FileExistsError(target)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            process = os.getpid()
            owner = {"host": _host(), "process": str(process), "started": _started(process)}
            json.dump(owner, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        finally:
            temporary.unlink()

    def _path(self, number: int, suffix: str) -> Path:
        return self._directory / f"{self._task}-{number:03d}.{suffix}"


def _host() -> str:
    """Return what tells machines, and runs of one machine, apart."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{platform.node()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    return f"{platform.node()}/?"


def _started(process: int) -> str:
    """Return when a process of this machine started, in ticks of its clock; "" for one that has
    ended.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
