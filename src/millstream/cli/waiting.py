"""Who is waited for, on standard error, while brokers cannot be reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from millstream.cli.failures import complain
from millstream.cli.output import counted, human_duration
from millstream.client.settings import Address

_TICK_S: Final = 0.5
_PATIENCE_S: Final = 3.0
"""A broker that is restarted is not told of at once."""
_AGAIN_S: Final = 30.0


class Waiting:
    """Tells, while a block runs, when brokers have been out of reach for some seconds, again every
    half minute, and when it is over.

    ``unreachable`` returns the brokers that connections fail to, and ``unsent`` how many records
    have no outcome yet.
    """

    def __init__(
        self,
        unreachable: Callable[[], Sequence[Address]],
        unsent: Callable[[], int] | None = None,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._unreachable = unreachable
        self._unsent = unsent
        self._patience_s = patience_s
        self._since: float | None = None
        self._clock_then = ""
        self._told_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-waiting", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_TICK_S):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Tell what has to be told at a time (s)."""
        away = self._unreachable()
        if not away:
            if self._told_at is not None and self._since is not None:
                complain(f"going on after {human_duration(round(now - self._since))}")
            self._since = self._told_at = None
            return
        if self._since is None:
            self._since = now
            self._clock_then = time.strftime("%H:%M:%S")
        last = self._since + self._patience_s - _AGAIN_S if self._told_at is None else self._told_at
        if now - last >= _AGAIN_S:
            self._told_at = now
            names = ", ".join(map(str, away))
            complain(f"waiting for {names} since {self._clock_then}{self._unsent_text()}")

    def _unsent_text(self) -> str:
        count = 0 if self._unsent is None else self._unsent()
        return f"; {counted(count, 'record')} not acknowledged" if count else ""
