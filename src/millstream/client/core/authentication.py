"""SASL on a connection: the requests of one exchange, in order (KIP-43, KIP-152, KIP-368).

::

    SaslHandshake(mechanism) -> SaslAuthenticate -> … -> complete

The same exchange authenticates a new connection and renews the authentication of one that is in
use. Kafka: ``SaslClientAuthenticator``.
"""

from __future__ import annotations

from typing import Final

from millstream.client.conversation import Conversation
from millstream.client.errors import AuthenticationError, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.security.sasl.mechanism import SaslAuthenticationError, SaslClient

_FIRST_WITH_HEADERS: Final = 1
"""After SaslHandshake in version 0 bytes without a header would follow, as before Kafka 1.0."""

_RENEWED_FROM: Final = 0.85
_RENEWED_WITHIN: Final = 0.10
_LEAST_BETWEEN_MS: Final = 1_000.0
"""A broker refuses to authenticate a connection anew within a second."""


class SaslExchange:
    """One exchange: :meth:`begin` returns the first request, :meth:`take` what follows an answer.

    Both raise AuthenticationError; it names no secret.
    """

    def __init__(self, client: SaslClient) -> None:
        self._client = client
        self.session_lifetime_ms = 0
        """How long the authentication holds; 0 without end. Known once it is complete."""

    def begin(self, conversation: Conversation) -> Request:
        """Return the request that names the mechanism.

        UnsupportedVersionError for a broker without SASL, or with that of Kafka before 1.0.
        """
        if conversation.version_for(SaslHandshakeRequest) < _FIRST_WITH_HEADERS:
            raise UnsupportedVersionError("the broker has no SaslAuthenticate (Kafka before 1.0)")
        return SaslHandshakeRequest(mechanism=self._client.mechanism)

    def take(self, response: Response) -> Request | None:
        """Return the request that follows; None once the broker has authenticated the client."""
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            return self._next(None)
        assert isinstance(response, SaslAuthenticateResponse), "an answer has its request's type"
        if response.error_code:
            told = response.error_message or ErrorCode.of(response.error_code).name
            raise AuthenticationError(f"{self._client.mechanism}: {told}")
        self.session_lifetime_ms = response.session_lifetime_ms
        if self._is_complete():
            return None
        following = self._next(response.auth_bytes)
        return None if self._is_complete() and not following.auth_bytes else following

    def _is_complete(self) -> bool:
        return self._client.is_complete

    def _next(self, challenge: bytes | None) -> SaslAuthenticateRequest:
        try:
            return SaslAuthenticateRequest(auth_bytes=self._client.evaluate(challenge))
        except SaslAuthenticationError as error:
            raise AuthenticationError(f"{self._client.mechanism}: {error}") from error

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        mechanism = self._client.mechanism
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise AuthenticationError(
                f"the broker has not enabled sasl.mechanism {mechanism}, but {offered}"
            )
        if error is ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                "the broker expects no SASL on this listener (security.protocol)"
            )
        if error is not ErrorCode.NONE:
            raise AuthenticationError(f"{mechanism}: {error.name}")


def renew_after_ms(session_lifetime_ms: int, chance: float) -> float:
    """Return when a session is renewed: after 85 to 95 % of it, by a number from 0 to 1.

    Clients must not all come at once, and the network takes time (Kafka:
    ``ReauthenticationInfo.setAuthenticationEndAndSessionReauthenticationTimes``).
    """
    share = _RENEWED_FROM + _RENEWED_WITHIN * chance
    return max(session_lifetime_ms * share, _LEAST_BETWEEN_MS)
