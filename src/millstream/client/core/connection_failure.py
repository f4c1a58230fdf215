"""Why a connection has ended, in words for the user: what the broker did, and what may be wrong."""

from __future__ import annotations

from typing import Final

from millstream.client.core.connection_attempt import State
from millstream.client.core.security import Security
from millstream.client.errors import ClientError, ConnectionFailedError, TlsError
from millstream.client.settings import Address

_TLS_ALERT: Final = 0x1503
"""How the answer of a listener with TLS to a client without it begins: an alert of any version."""


def failure_of(
    address: Address,
    error: OSError | ClientError | None,
    state: State,
    security: Security,
    *,
    is_answered: bool,
    first_bytes: int,
) -> ClientError:
    """Return the error of the requests that are lost.

    ``is_answered``: the broker has answered a request other than those that open a connection.
    ``first_bytes``: what a partial answer began with, as the size of a frame.
    """
    place = f"{'could not reach' if state is State.CONNECTING else 'lost'} the broker at {address}"
    if state is State.NEGOTIATING and first_bytes >> 16 == _TLS_ALERT:
        return TlsError(
            f"the broker at {address} speaks TLS only: security.protocol is SSL or SASL_SSL there"
        )
    if isinstance(error, TlsError) and not is_answered:
        return TlsError(f"{place}: {error}")
    guess = ""
    if state is State.NEGOTIATING and security.tls_source is None:
        guess = "; its listener may speak TLS only (security.protocol)"
    elif state is State.READY and not is_answered and error is None and security.sasl is None:
        guess = "; its listener may want SASL (security.protocol)"
    return ConnectionFailedError(f"{place}: {_words_of(error)}{guess}")


def _words_of(error: OSError | ClientError | None) -> str:
    if isinstance(error, OSError):
        return reason(error)
    return "it closed the connection" if error is None else str(error)


def reason(error: OSError) -> str:
    """Return the system's words for an error, without its number."""
    return (error.strerror or str(error)).lower()
