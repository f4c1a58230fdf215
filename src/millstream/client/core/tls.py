"""TLS between a connection and its transport, without a socket (``ssl.MemoryBIO``).

:class:`TlsSession` turns plain bytes into records and back; whoever owns the socket moves the
records. :class:`TlsTransport` puts one between a :class:`~millstream.client.core.loop.Transport`
and the owner of the connection, for every loop.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.client.core.loop import Transport, TransportEvents
from millstream.client.errors import ClientError, ConnectionFailedError, TlsError
from millstream.records.crc32c import Buffer

RECEIVE_BYTES: Final = 256 * 1024
"""The most that is read from a socket at once. A TLS record holds 16 KiB."""

_READ_BYTES: Final = 32 * 1024
_RECORD_BYTES: Final = 16 * 1024
_NO_BYTES: Final = b""


class TlsSession:
    """The client's side of one TLS connection; ``host`` is the name that was connected to.

    TlsError, from any of its methods, ends the connection; what :meth:`to_send` returns then is an
    alert for the other side. ConnectionFailedError, when it is made, for what is no name of a host.
    """

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._host = host
        try:
            self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except (ValueError, TypeError) as error:  # brokers may advertise anything
            raise ConnectionFailedError(f"this is not the name of a host ({error})") from None
        self.is_established = False
        """True once the handshake is complete."""
        self.has_answer = False
        """True once the other side has sent anything."""

    def feed(self, data: Buffer) -> None:
        """Take bytes that were received."""
        self.has_answer = True
        self._incoming.write(data)

    def to_send(self) -> bytes:
        """Return the bytes that have to be sent now, perhaps none."""
        return self._outgoing.read() if self._outgoing.pending else _NO_BYTES

    def handshake(self) -> bool:
        """Go on with the handshake; True once it is complete."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(why(error, self._host, _certificate_of(self._object))) from error
        self.is_established = True
        return True

    def read(self, room: memoryview | None) -> bytes | int | None:
        """Read into ``room`` and return how many bytes, or return bytes where there is no room.

        None: the rest of a record is missing. Nothing (0 or ``b""``): the other side has ended the
        connection.
        """
        try:
            if room is None:
                return self._object.read(_READ_BYTES)
            return self._object.read(len(room), room)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            raise TlsError(why(error, self._host)) from error

    def encrypt(self, pieces: Sequence[Buffer]) -> bytes:
        """Return the records of these pieces, to be sent after all earlier ones."""
        write = self._object.write
        try:
            if sum(map(len, pieces)) <= _RECORD_BYTES:
                write(b"".join(pieces))
            else:
                for piece in _without_small(pieces):
                    write(piece)
        except ssl.SSLError as error:
            raise TlsError(why(error, self._host)) from error
        return self._outgoing.read()

    def end(self) -> bytes:
        """Return the record that says that nothing follows (``close_notify``)."""
        # It wants the other side's answer, which nobody waits for.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._object.unwrap()
        return self.to_send()


def _without_small(pieces: Sequence[Buffer]) -> list[Buffer]:
    """Return the same bytes with small pieces joined: each piece begins a record of its own."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < _RECORD_BYTES:
            small.append(piece)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(piece)
    if small:
        joined.append(b"".join(small))
    return [piece for piece in joined if len(piece)]


class TlsTransport:
    """A transport over another one, and the events of that other one."""

    def __init__(self, context: ssl.SSLContext, host: str, events: TransportEvents) -> None:
        self._session = TlsSession(context, host)
        self._events: TransportEvents | None = events
        self._inner: Transport | None = None
        self._buffer: memoryview | None = None

    def over(self, inner: Transport) -> TlsTransport:
        """Use the transport whose events this object gets."""
        self._inner = inner
        return self

    # --- TransportEvents of the transport below --------------------------------------------------

    def connected(self) -> None:
        """Begin the handshake; the owner hears of the connection once it is complete."""
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._advance()

    @property
    def room(self) -> memoryview | None:
        """The buffer for records."""
        return self._buffer

    def filled(self, count: int) -> None:
        """See :attr:`room`."""
        if self._buffer is not None:
            self.received(self._buffer[:count])

    def received(self, data: Buffer) -> None:
        """Take records."""
        self._session.feed(data)
        self._advance()

    def closed(self, error: OSError | ClientError | None) -> None:
        """Report the end; one during the handshake says so."""
        events, self._events = self._events, None
        self._buffer = None
        if events is None:
            return
        if self._inner is not None and not self._session.is_established and error is None:
            error = ended_in_handshake(self._session)
        events.closed(error)

    # --- Transport for the owner -----------------------------------------------------------------

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        """Encrypt the pieces and send them."""
        if self._events is None or self._inner is None:
            return
        self._inner.write([self._session.encrypt(pieces)], on_sent)

    def close(self) -> None:
        """Say that nothing follows, if the connection allows it at once, and close."""
        if self._events is not None and self._inner is not None and self._session.is_established:
            self._send(self._session.end())
        self._events = None
        self._buffer = None
        if self._inner is not None:
            self._inner.close()

    # --- records ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            if self._session.is_established or self._establish():
                self._read()
        except TlsError as error:
            self._send(self._session.to_send())
            if self._inner is not None:
                self._inner.close()
            self.closed(error)

    def _establish(self) -> bool:
        complete = self._session.handshake()
        self._send(self._session.to_send())
        if complete and self._events is not None:
            self._events.connected()
        return complete

    def _read(self) -> None:
        session = self._session
        got: bytes | int | None = 1
        while got is not None and (events := self._events) is not None:
            room = events.room
            if room is None:
                got = session.read(None)
                if got:
                    assert isinstance(got, bytes)
                    events.received(got)
            else:
                # One call for many records, which hold 16 KiB each.
                filled, got = self._fill(room)
                if filled:
                    events.filled(filled)
            if got is not None and not got and self._events is not None:
                if self._inner is not None:
                    self._inner.close()
                self.closed(None)
                return
        self._send(session.to_send())

    def _fill(self, room: memoryview) -> tuple[int, int | None]:
        """Read into all of ``room`` if so much is there; return how many bytes, and what the last
        read returned.
        """
        filled = 0
        got: bytes | int | None = 1
        while got and filled < len(room):
            got = self._session.read(room[filled:])
            if got is not None:
                assert isinstance(got, int)
                filled += got
        assert not isinstance(got, bytes)
        return filled, got

    def _send(self, data: bytes) -> None:
        if data and self._inner is not None:
            self._inner.write([data])


def ended_in_handshake(session: TlsSession) -> ConnectionFailedError:
    """Return the error for a connection that ends before its handshake is complete."""
    guess = "" if session.has_answer else "; its listener may have no TLS"
    return ConnectionFailedError(f"it closed the connection during the TLS handshake{guess}")


_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS: its listener may be one without",
    "RECORD_LAYER_FAILURE": "it does not speak TLS: its listener may be one without",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS: its listener may be one without",
    "HTTP_REQUEST": "it does not speak TLS: its listener may be one without",
    "NO_PROTOCOLS_AVAILABLE": "ssl.enabled.protocols leaves no version",
    "UNSUPPORTED_PROTOCOL": "it has no TLS version that ssl.enabled.protocols allows",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no TLS version that ssl.enabled.protocols allows",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "it refused the handshake: no cipher in common (ssl.cipher.suites), or it wants a "
        "certificate (ssl.keystore.location)"
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "it wants a certificate of this client (ssl.keystore.location)"
    ),
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refused this client's certificate (ssl.keystore.location)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know who signed this client's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refused this client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "this client's certificate was revoked",
    "TLSV1_ALERT_ACCESS_DENIED": "it refused this client's certificate",
    "TLSV1_UNRECOGNIZED_NAME": "it has no certificate for this host name",
}

_SHOWN_NAMES: Final = 10
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET_VALID: Final = 9
_UNKNOWN_ISSUERS: Final = frozenset({2, 18, 19, 20, 21})
"""Numbers of X509_V_ERR_… for a chain that ends at nobody who is trusted."""
_MISMATCHES: Final = frozenset({62, 64})  # host name, IP address


def _certificate_of(connection: ssl.SSLObject) -> Mapping[str, object]:
    """Return the other side's certificate though it was not accepted, as ``getpeercert`` would:
    nothing where this Python does not tell.
    """
    with contextlib.suppress(Exception):
        # Public as of Python 3.13, and there for bytes alone: what matters is in words here.
        chain = connection._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        found: Mapping[str, object] = chain[0].get_info()
        return found
    return {}


def _names_of(certificate: Mapping[str, object]) -> str:
    names = certificate.get("subjectAltName")
    if not isinstance(names, tuple) or not names:
        return ""
    shown = ", ".join(str(name) for _, name in names[:_SHOWN_NAMES])
    return f"; it is for {shown}" + (" and others" if len(names) > _SHOWN_NAMES else "")


def _since(certificate: Mapping[str, object], field: str) -> str:
    moment = certificate.get(field)
    return f" ({' '.join(str(moment).split())})" if moment else ""


def why(error: ssl.SSLError, host: str, certificate: Mapping[str, object] = {}) -> str:
    """Return in words why TLS failed, and the setting that may be at fault.

    ``certificate`` is the other side's, as ``getpeercert`` returns one.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        code, told = error.verify_code, error.verify_message.rstrip(".")
        if code in _MISMATCHES:
            return (
                f"its certificate is not for {host} (ssl.endpoint.identification.algorithm): {told}"
                f"{_names_of(certificate)}"
            )
        if code in _UNKNOWN_ISSUERS:
            return (
                f"its certificate is not signed by a trusted authority (ssl.truststore.location): "
                f"{told}"
            )
        if code == _EXPIRED:
            return f"its certificate has expired{_since(certificate, 'notAfter')}"
        if code == _NOT_YET_VALID:
            return f"its certificate is not valid yet{_since(certificate, 'notBefore')}"
        return f"its certificate is not accepted: {told}"
    reason = error.reason or ""
    return _REASONS.get(reason, reason.replace("_", " ").lower() or str(error))
