"""The authentication of one connection, on the broker's side (Kafka: ``SaslServerAuthenticator``).

::

    FIRST ──ApiVersions──▶ HANDSHAKE
      │                        │
      └──────SaslHandshake─────┴──▶ TOKENS ──▶ COMPLETE ──SaslHandshake──▶ TOKENS …
                                       │
                                       └──▶ FAILED

A step admits the APIs on its arrows and SaslAuthenticate in TOKENS; after a handshake of version 0
the tokens are frames without a header (KIP-43). ApiVersions and SaslHandshake in TOKENS are refused
with an answer. COMPLETE admits everything. A client whose session
ends may authenticate again, as the same principal and with the same mechanism (KIP-368).

Times are given by the caller: wall-clock time for the end of credentials, monotonic time for the
end of sessions, both in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from millstream.model.errors import ConnectionClosedError, ErrorCode, KafkaError
from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.protocol.api import ApiKey
from millstream.security.sasl.mechanism import (
    InvalidExchangeError,
    SaslAuthenticationError,
    SaslServer,
)

MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
"""A client that authenticates again sooner is refused (Kafka: ``KafkaChannel``)."""


class SaslMechanisms(Protocol):
    """The mechanisms of a listener."""

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, for SaslHandshake."""

    def new_server(self, mechanism: str) -> SaslServer:
        """Return the broker's side of one exchange."""

    def max_session_ms(self, mechanism: str) -> int:
        """Return `connections.max.reauth.ms`; 0 for sessions without an end of their own."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks."""

    wall_ms: int
    monotonic_ms: float


class Step(Enum):
    """Where a connection stands."""

    FIRST = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


_ADMITTED: Final = {
    Step.FIRST: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    Step.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    Step.TOKENS: frozenset({ApiKey.SASL_AUTHENTICATE}),
    Step.COMPLETE: frozenset({ApiKey.SASL_HANDSHAKE}),
    Step.FAILED: frozenset[ApiKey](),
}


@dataclass(frozen=True, slots=True)
class _Previous:
    """Who a connection was before it began to authenticate again, and with what."""

    principal: KafkaPrincipal
    mechanism: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """What to answer to a token; ``session_ms`` is 0 until the exchange is complete, and for a
    session without an end.
    """

    token: bytes
    session_ms: int = 0


class ConnectionAuthentication:
    """Who a connection is, or how far it has come in saying so."""

    __slots__ = (
        "_began_ms",
        "_mechanism",
        "_mechanisms",
        "_previous",
        "_raw",
        "_server",
        "failure",
        "identifier",
        "principal",
        "session_ends_ms",
        "step",
    )

    def __init__(self, mechanisms: SaslMechanisms) -> None:
        self._mechanisms = mechanisms
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._raw = True
        """True while no handshake has said that tokens come in SaslAuthenticate."""
        self._previous: _Previous | None = None
        self._began_ms: float | None = None
        """When it last began to authenticate again."""
        self.step = Step.FIRST
        self.principal = ANONYMOUS
        self.session_ends_ms: float | None = None
        """Monotonic time after which requests are refused; None for a session without an end."""
        self.failure = ""
        """Why it failed, for the log."""
        self.identifier = ""
        """The name with which the client last tried to authenticate; that of a token is its id."""

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The mechanisms that a client may choose from."""
        return self._mechanisms.names

    @property
    def mechanism(self) -> str:
        """The mechanism that was chosen; empty before that."""
        return self._mechanism

    @property
    def takes_raw_tokens(self) -> bool:
        """True while the next frame is a token without a header."""
        return self.step is Step.TOKENS and self._raw

    @property
    def is_again(self) -> bool:
        """True while a client authenticates again."""
        return self._previous is not None

    def admits(self, api_key: int) -> bool:
        """Tell whether a request may be served in this step of the authentication."""
        return api_key in _ADMITTED[self.step]

    def has_expired(self, monotonic_ms: float) -> bool:
        """Tell whether the session of an authenticated client is over."""
        return self.session_ends_ms is not None and monotonic_ms > self.session_ends_ms

    def versions_told(self) -> None:
        """Note that ApiVersions was answered: the handshake has to follow."""
        if self.step is Step.FIRST:
            self.step = Step.HANDSHAKE

    def handshake(self, mechanism: str, *, version: int, now: Now) -> None:
        """Choose the mechanism.

        KafkaError: ILLEGAL_SASL_STATE for one who is authenticated and may not do it again, which
        changes nothing; ILLEGAL_SASL_STATE where a token has to come, and
        UNSUPPORTED_SASL_MECHANISM, end the authentication.
        """
        self.refuse_between_tokens()
        if self.step is Step.COMPLETE:
            self._begin_again(now)
        if version >= 1:
            self._raw = False
        if mechanism not in self._mechanisms.names:
            raise self._fail(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the SASL mechanism is not supported"
            )
        self.step = Step.TOKENS
        if self._previous is None or mechanism == self._previous.mechanism:
            self._mechanism = mechanism
            self._server = self._mechanisms.new_server(mechanism)

    def refuse_between_tokens(self) -> None:
        """Raise KafkaError (ILLEGAL_SASL_STATE), which ends the authentication, where a token has
        to come.
        """
        if self.step is Step.TOKENS:
            raise self._fail(
                ErrorCode.ILLEGAL_SASL_STATE, "another request came during the authentication"
            )

    def _begin_again(self, now: Now) -> None:
        began_ms = self._began_ms
        if self.session_ends_ms is None or (
            began_ms is not None and now.monotonic_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS
        ):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
        self._began_ms = now.monotonic_ms
        self._raw = True
        self._previous = _Previous(self.principal, self._mechanism)

    def authenticate(self, token: bytes, now: Now) -> Challenge:
        """Take a token of the client. SASL_AUTHENTICATION_FAILED, with Kafka's words, ends the
        authentication; ConnectionClosedError does so without an answer.
        """
        server = self._server
        if server is None:  # another mechanism than before was chosen
            self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, "the SASL mechanism has changed")
            raise ConnectionClosedError(self.failure)
        try:
            challenge = server.evaluate(token)
        except InvalidExchangeError as error:
            what = "re-authentication" if self.is_again else "authentication"
            raise self._fail(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                str(error),
                told=f"Authentication failed during {what} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}",
            ) from None
        except SaslAuthenticationError as error:
            raise self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
        except Exception:  # a bug, which must not leave the exchange open
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, "the mechanism has broken down")
            raise
        finally:
            self.identifier = server.claimed_name
        if server.authenticated is None:
            return Challenge(challenge)
        self._check_same(server.authenticated.principal)
        self._server = None
        self.principal = server.authenticated.principal
        self.step = Step.COMPLETE
        self._previous = None
        return Challenge(challenge, self._begin_session(server.authenticated.expires_at_ms, now))

    def _check_same(self, principal: KafkaPrincipal) -> None:
        previous = self._previous
        if previous is not None and previous.principal != principal:
            before = previous.principal
            raise self._fail(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication from "
                f"{before.type}.{before.name}: {principal.type}.{principal.name}",
            )

    def _begin_session(self, expires_at_ms: int | None, now: Now) -> int:
        """Return how long the session holds in milliseconds, 0 for one without an end."""
        ends = [self._mechanisms.max_session_ms(self._mechanism) or None]
        ends.append(None if expires_at_ms is None else expires_at_ms - now.wall_ms)
        limits = [end for end in ends if end is not None]
        if not limits:
            self.session_ends_ms = None
            return 0
        session_ms = max(0, min(limits))
        self.session_ends_ms = now.monotonic_ms + session_ms
        return session_ms

    def _fail(self, code: ErrorCode, reason: str, *, told: str | None = None) -> KafkaError:
        self.step = Step.FAILED
        self.failure = reason
        self._server = None
        self.principal = ANONYMOUS
        return KafkaError(code, told or reason)
