"""Ctrl-C and SIGTERM while records are sent: what was read is sent, then comes the end."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, Self

from millstream.client import Producer

LAST_SENDS_S: Final = 5.0
"""How long an interrupted command still sends what it has read: whoever stops a
command does not want to wait until records expire."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StoppableInput:
    """A descriptor that is read until its end, or until the first Ctrl-C or SIGTERM.

    A signal ends the wait for input and nothing else, so that what was read is not lost between
    two lines of the program. The second signal raises KeyboardInterrupt. One that the parent
    process has switched off stays so.
    """

    def __init__(self, descriptor: int) -> None:
        self.exit_code = 0
        """128 and the number of the signal that came; 0 for none."""
        self._descriptor = descriptor
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def __enter__(self) -> Self:
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._waker_before)
        os.close(self._waker)
        os.close(self._woken)

    def read(self, size: int) -> bytes:
        """Return what has come, ``size`` bytes at most; nothing at the end."""
        while not self.exit_code:
            ready, _, _ = select.select([self._descriptor, self._woken], [], [])
            if self._descriptor in ready:
                return os.read(self._descriptor, size)
            os.read(self._woken, 64)  # some other signal may have come
        return b""

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.exit_code:
            raise KeyboardInterrupt
        self.exit_code = 128 + number


@contextmanager
def ended_in_time(producer: Producer) -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends the block, what was handed over is sent for a few seconds."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        producer.close(LAST_SENDS_S)
        raise
