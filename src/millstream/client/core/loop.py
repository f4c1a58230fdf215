"""The client's interface to its environment: time, randomness, timers and connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from millstream.client.core.security import Security
from millstream.client.errors import ClientError
from millstream.client.settings import Address
from millstream.model.deferred import Deferred
from millstream.records.crc32c import Buffer

T = TypeVar("T")


class TimerHandle(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel it; does nothing if it has run already."""


class TransportEvents(Protocol):
    """The events of a connection; called on the loop, never from inside ``connect``."""

    def connected(self) -> None:
        """The connection is established."""

    def received(self, data: Buffer) -> None:
        """Bytes were received. ``data`` belongs to the receiver: it is not modified afterwards."""

    @property
    def room(self) -> memoryview | None:
        """The buffer into which the next bytes may be read directly; None if there is none."""

    def filled(self, count: int) -> None:
        """Bytes were read into :attr:`room`."""

    def closed(self, error: OSError | ClientError | None) -> None:
        """The connection failed, could not be made, or the peer closed it (None).

        Called once, and never after ``Transport.close``.
        """


class Transport(Protocol):
    """One connection, established or not yet."""

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        """Send the pieces in order; what the system does not take at once is kept by reference.

        ``on_sent`` is called, perhaps from in here, once the system has all of them; never when
        the connection ends before that.
        """

    def close(self) -> None:
        """Close the connection; no event follows. Further calls do nothing."""


class ClientLoop(Protocol):
    """The environment of one client. All its callbacks run one after the other."""

    @property
    def security(self) -> Security:
        """How the client protects its connections."""

    def now_ms(self) -> float:
        """Return a time in milliseconds that never goes back."""

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970, for record timestamps."""

    def random(self) -> float:
        """Return a number from 0 up to 1, 1 excluded; it may be guessed."""

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that nobody can guess, for salts."""

    def call_at(self, when_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` once ``now_ms()`` has reached ``when_ms``."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after the present callback, in the order of the calls."""

    def connect(self, address: Address, events: TransportEvents) -> Transport:
        """Begin to resolve and to connect; the result is reported as an event."""

    def run_blocking(self, work: Callable[[], T]) -> Deferred[T]:
        """Run a function that may block where it delays no callback."""
