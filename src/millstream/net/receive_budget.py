"""How many bytes of unfinished requests the broker holds in all (``queued.max.request.bytes``).

Over the limit, only the connection whose frame began first reads on: it will finish or
meet its deadline, so the others never wait for each other. The broker thus holds the limit, one
frame, and what one read brought that crossed the limit.
"""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A connection, as far as the budget knows it."""

    def resume(self) -> None:
        """Read on."""


class ReceiveBudget:
    """Shared by the connections of every listener; a limit that is not positive is none (Kafka:
    ``SocketServer.memoryPool``).
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[Reader, tuple[int, int]] = {}
        """Bytes and number of each unfinished frame, the one that began first at the front."""
        self._paused: dict[Reader, None] = {}

    @property
    def limits(self) -> bool:
        """False when there is nothing to count."""
        return self.limit_bytes > 0

    def note(self, reader: Reader, held_bytes: int, frame: int) -> bool:
        """Say what a connection holds of its unfinished frame ``frame`` (0 bytes: there is none);
        True when it may read on.

        A connection that may not is resumed later.
        """
        before_bytes, before = self._held.get(reader, (0, frame))
        self.used_bytes += held_bytes - before_bytes
        if not held_bytes or before != frame:
            self._held.pop(reader, None)
        if held_bytes:
            self._held[reader] = (held_bytes, frame)
        may_read = self._may_read(reader)
        if may_read:
            self._paused.pop(reader, None)
        else:
            self._paused[reader] = None
        self._wake()
        return may_read

    def forget(self, reader: Reader) -> None:
        """Drop a connection that is closed."""
        self.used_bytes -= self._held.pop(reader, (0, 0))[0]
        self._paused.pop(reader, None)
        self._wake()

    def _may_read(self, reader: Reader) -> bool:
        return self.used_bytes <= self.limit_bytes or next(iter(self._held), None) is reader

    def _wake(self) -> None:
        """Resume the connections that may read now."""
        if self.used_bytes <= self.limit_bytes:
            readers = list(self._paused)
        else:
            first = next(iter(self._held), None)
            readers = [first] if first in self._paused else []
        for reader in readers:
            del self._paused[reader]
            reader.resume()
