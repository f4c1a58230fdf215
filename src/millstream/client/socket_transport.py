"""A non-blocking TCP connection on a :class:`millstream.client.selector_loop.SelectorLoop`."""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.client.core.loop import TransportEvents
from millstream.platform import CONNECTING, send_pieces
from millstream.records.crc32c import Buffer

if TYPE_CHECKING:
    from millstream.client.selector_loop import SelectorLoop, Timer

_RECEIVE_BYTES: Final = 32 * 1024
"""The read size between responses; the rest of a response is read into its own buffer."""
ADDRESS_PATIENCE_MS: Final = 1_000
"""The connection time-out of an address if the host has others: an address that drops every packet
must not delay the next one for long (`client.dns.lookup=use_all_dns_ips`).
"""
_PIECES_AT_ONCE: Final = 256
"""Below the system's limit for one ``sendmsg``."""


class SocketTransport:
    """Implements ``core.loop.Transport``; tries the addresses of a host one after the other."""

    def __init__(
        self, loop: SelectorLoop, events: TransportEvents, send_bytes: int, receive_bytes: int
    ) -> None:
        self._loop = loop
        self._events: TransportEvents | None = events
        self._sizes = (
            (socket.SO_SNDBUF, send_bytes),
            (socket.SO_RCVBUF, receive_bytes),
        )
        self._addresses: list[tuple[int, Any]] = []
        self._patience: Timer | None = None
        self._socket: socket.socket | None = None
        self._is_connected = False
        self._unsent: deque[memoryview] = deque()
        self._written_bytes = 0
        self._sent_bytes = 0
        self._told_when_sent: deque[tuple[int, Callable[[], None]]] = deque()

    # --- connecting ------------------------------------------------------------------------------

    def try_addresses(self, addresses: Sequence[tuple[int, Any]]) -> None:
        """Connect to the first of these that answers."""
        self._addresses = list(addresses)
        self._try_next(OSError(errno.EADDRNOTAVAIL, "the name has no address"))

    def fail(self, error: OSError | None) -> None:
        """Close and report the end."""
        events = self._events
        self.close()
        if events is not None:
            events.closed(error)

    def _try_next(self, error: OSError) -> None:
        while self._events is not None:
            self._drop_socket()
            if not self._addresses:
                self.fail(error)
                return
            family, address = self._addresses.pop(0)
            try:
                self._open(family, address)
            except OSError as raised:
                error = raised
                continue
            if self._addresses:
                given_up = OSError(errno.ETIMEDOUT, _words(errno.ETIMEDOUT))
                self._patience = self._loop.call_at(
                    self._loop.now_ms() + ADDRESS_PATIENCE_MS, partial(self._try_next, given_up)
                )
            return

    def _open(self, family: int, address: Any) -> None:
        handle = socket.socket(family, socket.SOCK_STREAM)
        self._socket = handle
        handle.setblocking(False)
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._sizes:
            if size > 0:
                handle.setsockopt(socket.SOL_SOCKET, option, size)
        code = handle.connect_ex(address)
        if code not in CONNECTING:
            raise OSError(code, "connect")
        self._loop.watch(handle, selectors.EVENT_WRITE, self)

    def _finish_connecting(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._try_next(OSError(code, _words(code)))
            return
        self._lose_patience_no_more()
        self._is_connected = True
        self._loop.watch(self._socket, selectors.EVENT_READ, self)
        if self._events is not None:
            self._events.connected()

    def _lose_patience_no_more(self) -> None:
        timer, self._patience = self._patience, None
        if timer is not None:
            timer.cancel()

    # --- bytes -----------------------------------------------------------------------------------

    def on_events(self, mask: int) -> None:
        """Continue with reading or writing, according to the events."""
        if self._socket is None:
            return  # Closed by a callback that ran before this one, in the same pass of the loop.
        if not self._is_connected:
            self._finish_connecting()
            return
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self._socket is not None:
            self._receive()

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        """Send the pieces in order, now or when the socket accepts more."""
        if self._socket is None:
            return
        waiting = bool(self._unsent)
        self._unsent.extend(memoryview(piece) for piece in pieces if len(piece))
        self._written_bytes += sum(map(len, pieces))
        if on_sent is not None:
            self._told_when_sent.append((self._written_bytes, on_sent))
        if self._is_connected and not waiting:
            self._flush()

    def _flush(self) -> None:
        handle = self._socket
        while self._unsent and handle is not None:
            pieces = [self._unsent[i] for i in range(min(len(self._unsent), _PIECES_AT_ONCE))]
            try:
                count = send_pieces(handle, pieces)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                # Failing at once would call back into the writer.
                self._unsent.clear()
                self._told_when_sent.clear()
                self._loop.call_soon(partial(self.fail, error))
                return
            self._drop(count)
        if handle is not None:
            more = selectors.EVENT_WRITE if self._unsent else 0
            self._loop.watch(handle, selectors.EVENT_READ | more, self)
        while self._told_when_sent and self._told_when_sent[0][0] <= self._sent_bytes:
            self._told_when_sent.popleft()[1]()

    def _drop(self, count: int) -> None:
        self._sent_bytes += count
        while count:
            first = self._unsent[0]
            if count < len(first):
                self._unsent[0] = first[count:]
                return
            count -= len(first)
            self._unsent.popleft()

    def _receive(self) -> None:
        assert self._socket is not None
        if self._events is None:
            return
        room, data = self._events.room, b""
        try:
            if room is None:
                data = self._socket.recv(_RECEIVE_BYTES)
                count = len(data)
            else:
                count = self._socket.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.fail(error)
            return
        if not count:
            self.fail(None)
        elif room is None:
            self._events.received(data)
        else:
            self._events.filled(count)

    # --- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Hang up."""
        self._events = None
        self._unsent.clear()
        self._told_when_sent.clear()
        self._drop_socket()
        self._loop.forget(self)

    def _drop_socket(self) -> None:
        self._lose_patience_no_more()
        handle, self._socket = self._socket, None
        self._is_connected = False
        if handle is not None:
            self._loop.unwatch(handle)
            handle.close()


def _words(code: int) -> str:
    return os.strerror(code)
