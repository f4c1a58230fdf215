"""SASL on a connection: the requests of one exchange, in order (KIP-43, KIP-152, KIP-368).

::

    SaslHandshake(mechanism) -> SaslAuthenticate -> … -> complete

The same exchange authenticates a new connection and renews the authentication of one that is in
use. A token for a renewal is fetched while requests go on; only the exchange holds them up. Kafka:
``SaslClientAuthenticator``.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from millstream.client.conversation import Conversation
from millstream.client.core.loop import ClientLoop, TimerHandle
from millstream.client.core.security import SaslClients
from millstream.client.core.settings import ClientSettings
from millstream.client.core.waiting import ignore, within
from millstream.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionFailedError,
    UnsupportedVersionError,
    is_retriable,
)
from millstream.client.settings import Address
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, MillstreamError
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


_NEVER: Final = float("inf")

_log = logging.getLogger("millstream.client.connection")


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


class AuthenticatedSite(Protocol):
    """What the authentication needs of its connection."""

    @property
    def conversation(self) -> Conversation:
        """The negotiated versions."""

    @property
    def is_ready(self) -> bool:
        """True while requests are sent."""

    def is_used_since(self, when_ms: float) -> bool:
        """Return True if there are requests, or were since then."""

    def ask_at_once(self, request: Request) -> Deferred[Response]:
        """Send a request of the exchange, before all that wait."""

    def suspend(self) -> None:
        """Send no more requests; those in flight are answered."""

    def be_ready(self) -> None:
        """Send requests again."""

    def be_stale(self) -> None:
        """Authenticate anew before the next request."""

    def be_refused(self, error: ClientError) -> None:
        """Close the connection."""


class Authentication:
    """The authentication of one connection, from its first exchange to its end."""

    def __init__(
        self,
        loop: ClientLoop,
        settings: ClientSettings,
        address: Address,
        sasl: SaslClients,
        site: AuthenticatedSite,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._address = address
        self._sasl = sasl
        self._site = site
        self._renewal: TimerHandle | None = None
        self._session_end_ms = _NEVER
        self._authenticated_at_ms: float | None = None
        self._is_fetching = False
        self._closed = False

    @property
    def waits_for(self) -> str | None:
        """What the connection waits for that does not come from the broker."""
        return self._sasl.source if self._is_fetching else None

    def begin(self) -> None:
        """Authenticate, for the first time or anew; requests wait until that is done."""
        self._stop_renewal()
        self._site.suspend()
        # Later: what this is called from goes on with the connection, which may end at once.
        self._loop.call_soon(lambda: ignore(spawn(self._authenticate())))

    def close(self) -> None:
        """The connection has ended."""
        self._closed = True
        self._stop_renewal()

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    async def _authenticate(self) -> None:
        client = await self._client_or_failure()
        if client is not None:
            await self._exchange(client)

    async def _renew_with_new_token(self) -> None:
        client = await self._client_or_failure()
        if client is not None:
            self._site.suspend()
            await self._exchange(client)

    async def _client_or_failure(self) -> SaslClient | None:
        """Return the client's side of an exchange; None without one, or if the connection ended."""
        try:
            client = await self._client() if self._sasl.may_block else self._sasl.client()
        except MillstreamError as error:
            self._failed(error, begun=False)
            return None
        return None if self._closed else client

    async def _client(self) -> SaslClient:
        """Wait for a token, at most until the present session ends."""
        now = self._loop.now_ms()
        limit_ms = self._settings.request_timeout_ms
        if self._lasts(now):
            limit_ms = min(limit_ms, self._session_end_ms - now)
        self._is_fetching = True
        try:
            fetched = self._loop.run_blocking(self._sasl.client)
            return await within(self._loop, fetched, limit_ms, self._sasl.source)
        finally:
            self._is_fetching = False

    async def _exchange(self, client: SaslClient) -> None:
        try:
            exchange = SaslExchange(client)
            request: Request | None = exchange.begin(self._site.conversation)
            while request is not None and not self._closed:
                request = exchange.take(await self._site.ask_at_once(request))
        except MillstreamError as error:
            self._failed(error, begun=True)
            return
        if not self._closed:
            self._succeeded(exchange.session_lifetime_ms)

    def _lasts(self, now_ms: float) -> bool:
        return self._authenticated_at_ms is not None and now_ms < self._session_end_ms

    def _failed(self, error: MillstreamError, *, begun: bool) -> None:
        """Close the connection, unless the present session lasts and a token may come yet."""
        if self._closed:
            return
        now = self._loop.now_ms()
        if isinstance(error, ConnectionFailedError) and self._lasts(now) and not begun:
            _log.info("no token to renew the session at %s: %s", self._address, error)
            self._renew_at(now + self._settings.retry_backoff_max_ms)
            if not self._site.is_ready:
                self._site.be_ready()
            return
        place = f"could not authenticate at the broker at {self._address}"
        kind = ConnectionFailedError if is_retriable(error) else AuthenticationError
        self._site.be_refused(kind(f"{place}: {error}"))

    def _succeeded(self, session_lifetime_ms: int) -> None:
        now = self._loop.now_ms()
        self._authenticated_at_ms = now
        self._session_end_ms = _NEVER
        if session_lifetime_ms > 0:
            self._session_end_ms = now + session_lifetime_ms
            self._renew_at(now + renew_after_ms(session_lifetime_ms, self._loop.random()))
        self._site.be_ready()

    def _renew_at(self, when_ms: float) -> None:
        self._renewal = self._loop.call_at(when_ms, self._renew)

    def _renew(self) -> None:
        """Renew the session; that of an unused connection when it is used again."""
        self._renewal = None
        if not self._site.is_ready:
            return
        if not self._site.is_used_since(self._authenticated_at_ms or 0.0):
            self._site.be_stale()
        elif self._sasl.may_block:
            ignore(spawn(self._renew_with_new_token()))
        else:
            self.begin()
