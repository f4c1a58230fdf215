"""The broker's side of TLS in memory: takes what a client sends, returns what to answer."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(
    certificate: Path, key: Path, *, authority: Path | None = None
) -> ssl.SSLContext:
    """Return the context of a listener; with an authority it wants a certificate of the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority)
    return context


class TlsPeer:
    """One connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=True)
        self.is_established = False
        self.received = bytearray()
        self.has_ended = False
        self.error: ssl.SSLError | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the client; return the bytes to answer."""
        self._in.write(data)
        try:
            if not self.is_established:
                self._object.do_handshake()
                self.is_established = True
            while True:
                piece = self._object.read(1 << 16)
                if not piece:
                    self.has_ended = True
                    break
                self.received += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        return self._out.read()

    def send(self, data: bytes) -> bytes:
        """Return the records of these bytes."""
        self._object.write(data)
        return self._out.read()
