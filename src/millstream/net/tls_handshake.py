"""The handshake of TLS on a socket that is connected, before anything is sent or received.

Nothing is allocated for a peer that says nothing: the state of TLS is made when its first bytes
have come (on the client's side at once). A peer that hangs up, sends what is no TLS, or more than
a handshake has, fails: the owner is told once, and the socket is closed. The owner has the
deadline, and ``close``.
"""

from __future__ import annotations

import socket
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from millstream.net.handshake_turns import HandshakeTurns
from millstream.net.transport import Scratch, TlsTransport, reason_of

_DRAINED_BYTES: Final = 64 * 1024
RECEIVED_BYTES: Final = 16 * 1024
"""How much is received at once, one record of TLS: what a peer sends stays in memory until the
handshake has consumed it."""
MAX_RECEIVED_BYTES: Final = 64 * 1024
"""How much a peer may send before its handshake is done: a chain of four certificates has 8 KiB."""
MAX_UNSENT_BYTES: Final = 64 * 1024
"""How much of what it is told a peer may leave unread."""


class TlsHandshake:
    """One handshake. ``on_done(transport)`` or ``on_failed(reason)`` is called later, never within
    the constructor; after ``close`` neither is. The reason is empty for a peer that hung up before
    it sent anything, as one does that only looks whether anybody listens.

    ``server_name`` is the host whose certificate a client expects; None on the broker's side.
    ``turns`` bounds what the handshakes of a pass of the loop compute; None for one that this side
    has begun.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        loop: AbstractEventLoop,
        context: ssl.SSLContext,
        scratch: Scratch,
        on_done: Callable[[TlsTransport], None],
        on_failed: Callable[[str], None],
        server_name: str | None = None,
        turns: HandshakeTurns | None = None,
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._context = context
        self._scratch = scratch
        self._on_done = on_done
        self._on_failed = on_failed
        self._server_name = server_name
        self._turns = turns
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._unsent = b""
        self._received_bytes = 0
        self._writing = False
        self._closed = False
        loop.add_reader(self._fd, self._on_readable)
        if server_name is not None:
            loop.call_soon(self._step)

    def close(self) -> None:
        """Give up without a word to the owner."""
        if not self._closed:
            self._leave_loop()
            self._socket.close()

    def _leave_loop(self) -> None:
        self._closed = True
        if self._turns is not None:
            self._turns.leave(self._on_turn)
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)

    def _on_readable(self) -> None:
        if self._turns is None or self._turns.take(self._on_turn):
            self._receive()
        else:
            self._loop.remove_reader(self._fd)

    def _on_turn(self) -> None:
        """Go on after others were served in between."""
        self._loop.add_reader(self._fd, self._on_readable)
        self._receive()

    def _receive(self) -> None:
        view = self._scratch.view[:RECEIVED_BYTES]
        try:
            count = self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(f"lost during the TLS handshake: {error.strerror}")
            return
        if not count:
            self._fail("" if self._tls is None else "hung up during the TLS handshake")
            return
        self._received_bytes += count
        if self._received_bytes > MAX_RECEIVED_BYTES:
            self._fail("the TLS handshake failed: it is longer than any")
            return
        self._incoming.write(view[:count])
        self._step()

    def _step(self) -> None:
        if self._closed:
            return
        try:
            if self._tls is None:
                self._tls = self._context.wrap_bio(
                    self._incoming,
                    self._outgoing,
                    server_side=self._server_name is None,
                    server_hostname=self._server_name,
                )
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except (ssl.SSLError, ValueError) as error:
            self._send()  # the alert says why
            self._fail(f"the TLS handshake failed: {reason_of(error)}")
            return
        self._send()
        if not self._unsent and not self._closed:
            self._finish()

    def _finish(self) -> None:
        assert self._tls is not None
        self._leave_loop()
        bios = (self._incoming, self._outgoing)
        self._on_done(TlsTransport(self._socket, self._loop, self._tls, bios, self._scratch))

    def _send(self) -> None:
        """Send what TLS has to say; watch for room where the socket does not take it."""
        self._unsent += self._outgoing.read()
        if not self._unsent:
            return
        if len(self._unsent) > MAX_UNSENT_BYTES:
            self._fail("the TLS handshake failed: the peer reads nothing")
            return
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._fail(f"lost during the TLS handshake: {error.strerror}")
            return
        if bool(self._unsent) != self._writing:
            self._writing = not self._writing
            if self._writing:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._send()
        if not self._unsent:
            self._step()

    def _fail(self, reason: str) -> None:
        if self._closed:
            return
        self._leave_loop()
        # A socket that is closed with bytes unread is reset, and the alert would be lost.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.recv_into(self._scratch.view[:_DRAINED_BYTES])
        self._socket.close()
        self._on_failed(reason)
