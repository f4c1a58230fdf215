"""A connection between a keeper and a client, as both see it: frames in, frames out.

``net.local_socket`` is one over a socket of the machine; tests pass one with virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from millstream.protocol.outgoing import Outgoing


class Link(Protocol):
    """One end of a connection. Nothing here blocks."""

    @property
    def pending_bytes(self) -> int:
        """Bytes that were sent and that the other side has not taken yet."""

    def send(self, outgoing: Outgoing) -> None:
        """Send one frame; what cannot go now follows. Does nothing on a closed connection."""

    def close(self) -> None:
        """Hang up; closing twice is harmless. The owner is not called for it."""


class LinkOwner(Protocol):
    """Whom a link tells. It is never called inside a call of the link."""

    def connected(self) -> None:
        """The other side has taken the connection; told to who opened it."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its size, valid until this returns. ProtocolError closes."""

    def closed(self, reason: str, *, by_peer: bool) -> None:
        """The connection is gone, or never came to be; ``by_peer`` when the other side ended it."""


OpenLink: TypeAlias = Callable[[LinkOwner], Link]
"""Begins to connect; the owner is called with the outcome later."""
