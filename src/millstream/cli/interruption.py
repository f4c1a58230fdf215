"""Ctrl-C and SIGTERM while records are sent: what was read is sent, then comes the end."""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, Self

from millstream.client import Producer
from millstream.platform import IS_PORTABLE

LAST_SENDS_S: Final = 5.0
"""How long an interrupted command still sends what it has read: whoever stops a
command does not want to wait until records expire."""

_REPEATED_S: Final = 1.0
_LOOK_S: Final = 0.1
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
        self._input: _SelectedInput | _ThreadInput = (
            _ThreadInput(descriptor) if IS_PORTABLE else _SelectedInput(descriptor)
        )

    def __enter__(self) -> Self:
        self._input.open()
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
        self._input.close()

    def read(self, size: int) -> bytes:
        """Return what has come, ``size`` bytes at most; nothing at the end."""
        while not self.exit_code:
            data = self._input.read(size)
            if data is not None:
                return data
        return b""

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.exit_code:
            raise KeyboardInterrupt
        self.exit_code = 128 + number


class _SelectedInput:
    """Reads when there is something; a signal wakes the wait through a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def open(self) -> None:
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def close(self) -> None:
        signal.set_wakeup_fd(self._waker_before)
        os.close(self._waker)
        os.close(self._woken)

    def read(self, size: int) -> bytes | None:
        """Return what has come, nothing at the end; None when a signal has come instead."""
        ready, _, _ = select.select([self._descriptor, self._woken], [], [])
        if self._descriptor in ready:
            return os.read(self._descriptor, size)
        os.read(self._woken, 64)  # some other signal may have come
        return None


class _ThreadInput:
    """Reads on a thread, as Windows needs it: ``select`` takes sockets only there.

    It reads a piece when one is asked for, so a signal loses nothing that was read before it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._pieces: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
        self._owes = False

    def open(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._asked.put(0)

    def read(self, size: int) -> bytes | None:
        """Return what has come, nothing at the end; None now and then: a signal may have come."""
        if not self._owes:
            self._owes = True
            self._asked.put(size)
        try:
            piece = self._pieces.get(timeout=_LOOK_S)
        except queue.Empty:
            return None
        self._owes = False
        if isinstance(piece, OSError):
            raise piece
        return piece

    def _run(self) -> None:
        while size := self._asked.get():
            try:
                self._pieces.put(os.read(self._descriptor, size))
            except OSError as error:
                self._pieces.put(error)


@contextmanager
def ended_in_time(producer: Producer) -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends the block, what was handed over is sent for a few seconds."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        producer.close(LAST_SENDS_S)
        raise


@contextmanager
def repeated_signals_ignored() -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends the block, the same signal again within a second is taken as one
    with it: `timeout` sends it to a command and to its process group, and what the block does in
    its end must not be cut short by that. A later one ends the block at once.
    """
    last = float("-inf")

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _REPEATED_S:
            return
        last = now
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
