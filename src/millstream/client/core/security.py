"""How a client protects its connections, as its loop offers it to the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millstream.security.sasl.mechanism import SaslClient

if TYPE_CHECKING:
    import ssl


class SaslClients(Protocol):
    """Makes the client's side of an exchange for each connection."""

    @property
    def may_block(self) -> bool:
        """True if :meth:`client` may wait, for a token: it is called on another thread then."""

    @property
    def source(self) -> str:
        """What :meth:`client` waits for if it waits, for the text of a time-out."""

    def client(self) -> SaslClient:
        """Return a new machine.

        AuthenticationError, or ConnectionFailedError where a token cannot be had now.
        """

    def awaiting(self, resolve: Callable[[object], object]) -> SaslClients:
        """Return the same for a loop that waits for what a function of the user returned."""


@dataclass(frozen=True, slots=True)
class Security:
    """What a ``security.protocol`` comes to."""

    tls_source: Callable[[], ssl.SSLContext] | None = None
    """Returns the context for the next connection: certificates may have been replaced."""
    sasl: SaslClients | None = None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for the next connection; None without TLS."""
        return None if self.tls_source is None else self.tls_source()


PLAINTEXT = Security()
