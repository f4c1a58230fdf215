"""The states of a connection, and one attempt: it passes events on until it is abandoned."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from millstream.client.errors import ClientError
from millstream.records.crc32c import Buffer


class State(Enum):
    """The state of a connection."""

    IDLE = auto()
    WAITING = auto()
    CONNECTING = auto()
    NEGOTIATING = auto()
    AUTHENTICATING = auto()
    READY = auto()
    STALE = auto()


class AttemptOwner(Protocol):
    """Who hears of an attempt: see ``loop.TransportEvents``."""

    def on_connected(self) -> None:
        """The connection is established."""

    def on_received(self, data: Buffer) -> None:
        """Bytes were received."""

    @property
    def room(self) -> memoryview | None:
        """The buffer into which the next bytes may be read directly."""

    def on_filled(self, count: int) -> None:
        """Bytes were read into :attr:`room`."""

    def on_closed(self, error: OSError | ClientError | None) -> None:
        """The connection has ended."""


class ConnectionAttempt:
    """The events of one attempt; those of an abandoned attempt are ignored."""

    __slots__ = ("owner",)

    def __init__(self, owner: AttemptOwner) -> None:
        self.owner: AttemptOwner | None = owner

    def connected(self) -> None:
        """The connection is established."""
        if self.owner is not None:
            self.owner.on_connected()

    def received(self, data: Buffer) -> None:
        """Bytes were received."""
        if self.owner is not None:
            self.owner.on_received(data)

    @property
    def room(self) -> memoryview | None:
        """The buffer into which the next bytes may be read directly."""
        return None if self.owner is None else self.owner.room

    def filled(self, count: int) -> None:
        """Bytes were read into :attr:`room`."""
        if self.owner is not None:
            self.owner.on_filled(count)

    def closed(self, error: OSError | ClientError | None) -> None:
        """The connection has ended."""
        if self.owner is not None:
            self.owner.on_closed(error)
