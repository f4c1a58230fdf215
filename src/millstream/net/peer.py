"""The other end of a connection, and who serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.net.connection import Served
from millstream.protocol.framing import FrameReader


def _nothing() -> None:
    """Do nothing: nobody waits for the peer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection as the dispatcher knows it."""

    connection_id: int
    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    principal: KafkaPrincipal = ANONYMOUS
    """Who the certificate of the peer speaks for; anonymous without one."""
    mute: Callable[[float], None] | None = None
    """Has nothing more of the peer handled for so many milliseconds."""
    on_authenticated: Callable[[], None] = _nothing
    """To be called once a peer that has to authenticate, by SASL, has done so: until then it counts
    as half open, and has a deadline."""


class Session(Protocol):
    """Who serves the frames of one connection."""

    @property
    def serve(self) -> Callable[[memoryview], Served]:
        """Answers one frame, see ``Connection``."""

    def limit(self, frames: FrameReader) -> None:
        """Called before anything is received: lower the limits of the frames of a client that has
        to authenticate first.
        """

    def closed(self) -> None:
        """The peer has gone: nothing needs to wait on its behalf any more."""


OpenSession = Callable[[Peer], Session]
