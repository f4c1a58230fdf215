"""What every measured process has in common, whether it is a broker or a loop."""

from __future__ import annotations

from typing import Protocol


class SubjectFailedError(Exception):
    """A measured process did not start, ended, or did wrong work; the message says which."""


class Node(Protocol):
    """A process that listens on a port of this machine."""

    host: str
    port: int
    spawned_at: float

    @property
    def pid(self) -> int:
        """Process id, for its CPU time and memory."""

    def check_alive(self) -> None:
        """Raise when the process has ended."""

    def kill(self) -> None:
        """End the process at once, as a crash would."""

    def stop(self) -> None:
        """End the process."""
