"""Ensures that one attempt at a time writes a task of a micro-batch, by files in the checkpoint.

::

    <checkpoint>/millstream-sink/<batch>/<task>-000.claim      the first attempt: host and process
    <checkpoint>/millstream-sink/<batch>/<task>-000.released   it does not write any more
    <checkpoint>/millstream-sink/<batch>/<task>-001.claim      the attempt that took over from it

An attempt creates the file with the next number, which only one can. The previous attempt is then
superseded: before it sends rows it checks for a higher number, finds it, stops, waits for its
outstanding sends, and releases. The new attempt waits for that before it reads what is in the
topic. An attempt whose process is known to be dead, because it was on this machine, counts as
released; for a silent one, no request is assumed to be in flight after the patience, because a
producer gives up after ``delivery.timeout.ms``.

Within one run of a query a live attempt is never superseded: there a second attempt is Spark's
speculation, a superseded task would count as failed, and four failures end the query. The second
attempt waits. An attempt is live as long as it touches its claim, which it does every few seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.model.errors import MillstreamError

_POLL_S: Final = 0.1
_BEAT_S: Final = 3.0
_SILENT_S: Final = 30.0
"""After this time without a heartbeat an attempt counts as dead; some file systems show it late."""


class SupersededError(MillstreamError):
    """Another attempt at the same task has taken over: this one must not write any more."""


class Claim:
    """One attempt's right to write a task's rows, created by :meth:`take`."""

    def __init__(self, directory: Path, task: int, number: int) -> None:
        self._directory = directory
        self._task = task
        self._number = number
        self._is_over_now = threading.Event()

    @classmethod
    def take(
        cls,
        directory: Path,
        task: int,
        run: str = "",
        *,
        silent_s: float = _SILENT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Claim:
        """Take over the task from an earlier attempt; first wait for a live one of the same
        ``run``.

        ``directory`` is that of the micro-batch; ``run`` identifies one start of the query ("":
        none).
        """
        directory.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            claim = cls(directory, task, number)
            before = cls(directory, task, number - 1)
            if run and number and not claim._is_taken():
                before._wait_while_alive(run, silent_s, sleep)
            try:
                claim._write(run)
            except FileExistsError:
                number += 1
            else:
                threading.Thread(target=claim._beat, daemon=True).start()
                return claim

    def _wait_while_alive(self, run: str, silent_s: float, sleep: Callable[[float], None]) -> None:
        """Wait until this claim's attempt has ended, is silent, or is superseded.

        SupersededError if the later one is of another run: then this run has ended.
        """
        beat, heard = 0, time.monotonic()
        while self._owner().get("run") == run and not self._is_over(self._number):
            later = Claim(self._directory, self._task, self._number + 1)
            if later._is_taken():
                if later._owner().get("run") == run:
                    return
                raise SupersededError(
                    f"task {self._task} of micro-batch {self._directory.name} belongs to "
                    "another run: the query was restarted"
                )
            now = self._last_beat()
            if now != beat:
                beat, heard = now, time.monotonic()
            elif time.monotonic() - heard > silent_s:
                return
            sleep(_POLL_S)

    def _beat(self) -> None:
        """Touch the claim as a heartbeat."""
        while not self._is_over_now.wait(_BEAT_S):
            with contextlib.suppress(OSError):  # removed, or unreachable: it counts as dead
                os.utime(self._path(self._number, "claim"))

    def _last_beat(self) -> int:
        try:
            return self._path(self._number, "claim").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _is_taken(self) -> bool:
        return self._path(self._number, "claim").exists()

    def _owner(self) -> dict[str, str]:
        try:
            owner: dict[str, str] = json.loads(self._path(self._number, "claim").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return owner

    def check(self) -> None:
        """Raise SupersededError when another attempt has taken over, or the micro-batch is done."""
        taken = self._path(self._number + 1, "claim").exists()
        if taken or not self._path(self._number, "claim").exists():
            raise SupersededError(
                f"attempt {self._number} at task {self._task} of micro-batch "
                f"{self._directory.name} is over: another one has taken its place"
            )

    def release(self) -> None:
        """Record that this attempt has no request in flight any more."""
        self._is_over_now.set()
        with contextlib.suppress(FileNotFoundError):  # the micro-batch is done
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
        owner = Claim(self._directory, self._task, number)._owner()
        if not owner:
            return False
        if owner["host"] != _host():
            return False
        return _started(int(owner["process"])) != owner["started"]

    def _write(self, run: str) -> None:
        """Create the claim's file atomically; FileExistsError if the number is taken."""
        target = self._path(self._number, "claim")
        if self._is_taken():
            raise FileExistsError(target)
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with temporary.open("w") as file:
            process = os.getpid()
            owner = {"host": _host(), "process": str(process), "started": _started(process)}
            json.dump({**owner, "run": run}, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        finally:
            temporary.unlink()

    def _path(self, number: int, suffix: str) -> Path:
        return self._directory / f"{self._task}-{number:03d}.{suffix}"


def _host() -> str:
    """Return an id of this machine and its boot."""
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
