"""What Python's own TLS does not do as a client: ask for another handshake, or for new keys.

The functions of OpenSSL that ``_ssl`` is linked with are called by ctypes on its object. Where that
object looks otherwise than in CPython, ``hostile`` skips the test.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
from contextlib import suppress
from typing import Final

import pytest

_SSL_AT: Final = 2 * ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_void_p)
"""Where CPython's object keeps OpenSSL's: behind the head of the object and one reference."""
_VERSIONS: Final = {"TLSv1.2": 0x303, "TLSv1.3": 0x304}
_REQUEST_AN_UPDATE: Final = 1


class Hostile:
    """A client after its handshake, and what it may ask for."""

    def __init__(self, client: ssl.SSLObject) -> None:
        self._client = client
        self._openssl = ctypes.CDLL(_ssl.__file__)
        for name, arguments in (
            ("SSL_version", [ctypes.c_void_p]),
            ("SSL_renegotiate", [ctypes.c_void_p]),
            ("SSL_key_update", [ctypes.c_void_p, ctypes.c_int]),
        ):
            getattr(self._openssl, name).argtypes = arguments
        inner = client._sslobj  # type: ignore[attr-defined]
        self._pointer = ctypes.c_void_p.from_address(id(inner) + _SSL_AT).value

    @property
    def is_what_it_seems(self) -> bool:
        """True where OpenSSL finds its own object there."""
        version = self._openssl.SSL_version(self._pointer)
        return bool(version == _VERSIONS[self._client.version() or ""])

    def ask_for_new_keys(self) -> None:
        """Send a KeyUpdate that asks for one in return (TLS 1.3)."""
        assert self._openssl.SSL_key_update(self._pointer, _REQUEST_AN_UPDATE) == 1
        self._go_on()

    def ask_for_another_handshake(self) -> None:
        """Send a ClientHello in the middle of a session (TLS 1.2)."""
        assert self._openssl.SSL_renegotiate(self._pointer) == 1
        self._go_on()

    def _go_on(self) -> None:
        with suppress(ssl.SSLWantReadError):
            self._client.do_handshake()


def hostile(client: ssl.SSLObject) -> Hostile:
    """Return what a client may ask for; the test is skipped where that cannot be done."""
    try:
        made = Hostile(client)
    except (OSError, AttributeError) as error:
        pytest.skip(f"no way to OpenSSL's own functions: {error}")
    if not made.is_what_it_seems:
        pytest.skip("this Python keeps OpenSSL's object elsewhere")
    return made
