"""What the client asks of the world: time, chance, timers and connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millstream.client.settings import Address
from millstream.records.crc32c import Buffer


class TimerHandle(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Never run it; harmless when it has run already."""


class TransportEvents(Protocol):
    """What happens on a connection; called on the loop, never from inside ``connect``."""

    def connected(self) -> None:
        """The connection is there."""

    def received(self, data: Buffer) -> None:
        """Bytes came. ``data`` belongs to the receiver: nobody writes into it afterwards."""

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes may be written instead of being handed over; None for nowhere."""

    def filled(self, count: int) -> None:
        """Bytes came and were written into :attr:`room`."""

    def closed(self, error: OSError | None) -> None:
        """The connection failed, could not be made, or the peer closed it (None).

        Called once, and never after ``Transport.close``.
        """


class Transport(Protocol):
    """One connection, being made or there."""

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        """Send the pieces in order; what the system does not take at once is kept by reference.

        ``on_sent`` is called, perhaps from in here, once the system has all of them; never when
        the connection ends before that.
        """

    def close(self) -> None:
        """Hang up; no event follows. Closing twice is harmless."""


class ClientLoop(Protocol):
    """The world of one client. All its callbacks run one after the other."""

    def now_ms(self) -> float:
        """Return a time in milliseconds that never goes back."""

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970, as records carry them."""

    def random(self) -> float:
        """Return a number from 0 up to 1, 1 excluded."""

    def call_at(self, when_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` once ``now_ms()`` has reached ``when_ms``."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after what runs now, in the order of the calls."""

    def connect(self, address: Address, events: TransportEvents) -> Transport:
        """Begin to resolve and to connect; how it ends comes as an event."""
