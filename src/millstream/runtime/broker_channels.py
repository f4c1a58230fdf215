"""Connections to the other brokers, on their inter-broker listener: requests out, answers back.

A channel connects at its first request, agrees on versions, and stays until it fails. A broker
answers the requests of one connection in order, so requests that may be slow (a follower's long
poll) have a channel of their own: ``lane`` names it. What a failure tells of the request:

====================  ==========================================================================
BROKER_NOT_AVAILABLE  it never left this broker: no such broker is known, or it took no connection
NETWORK_EXCEPTION     it was sent and the connection is gone: nobody knows whether it was served
REQUEST_TIMED_OUT     it was sent and not answered in time: nobody knows either; the connection is
                      closed, for a late answer would keep all others waiting
UNSUPPORTED_VERSION   the other side does not speak it
====================  ==========================================================================
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from millstream.client.conversation import Conversation
from millstream.client.errors import ClientError, UnsupportedVersionError
from millstream.model.broker import BrokerId, Endpoint
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.protocol.message import Request, Response
from millstream.protocol.outgoing import Outgoing
from millstream.security.sasl.mechanism import SaslClient

if TYPE_CHECKING:
    from millstream.client.core.authentication import SaslExchange

log = logging.getLogger(__name__)

CONTROLLER_LANE: Final = "controller"
"""The lane of messages between the controller and the brokers."""

FETCH_STATES_LANE: Final = "fetch-states"

_RENEWED_AFTER: Final = 0.9
"""The part of a session after which it is renewed."""

_LEAST_SESSION_MS: Final = 1_000.0
"""A broker refuses to authenticate a connection anew within a second."""

NewSaslClient: TypeAlias = Callable[[], Deferred[SaslClient]]
"""Makes this broker's side of an exchange; it fails while there are no credentials (a token that
cannot be had).
"""


class TransportOwner(Protocol):
    """Called with what becomes of a transport; see ``net.channel.ChannelOwner``."""

    def connected(self) -> None:
        """The other side has accepted the connection."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its size, valid until this returns. ProtocolError closes."""

    def closed(self, reason: str) -> None:
        """The connection is closed, or the attempt at it failed."""


class Transport(Protocol):
    """One connection, or the attempt at one."""

    @property
    def received_size(self) -> int:
        """How many bytes have arrived, of frames that are not complete too."""

    def send(self, outgoing: Outgoing) -> None:
        """Send one frame, once connected."""

    def close(self) -> None:
        """Close the connection; the owner is not called."""


class Network(Protocol):
    """Opens transports: TCP in a broker (``net.channel.LoopNetwork``), memory in the simulator."""

    def open(self, host: str, port: int, owner: TransportOwner) -> Transport:
        """Begin to connect; the owner is called later, never within this call."""


class _Asked:
    """One request and the Deferred of its answer."""

    __slots__ = ("outcome", "request", "sent", "timer", "version")

    def __init__(self, request: Request, version: int | None) -> None:
        self.request = request
        self.version = version
        self.outcome: Deferred[Response] = Deferred()
        self.timer: TimerHandle | None = None
        self.sent = False

    def fail(self, code: ErrorCode, message: str) -> None:
        """Fail the Deferred, unless it is filled already."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.outcome.done:
            self.outcome.fail(KafkaError(code, message))

    def complete(self, response: Response) -> None:
        """Hand over the answer."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.outcome.done:
            self.outcome.complete(response)


class _Incarnation:
    """One connection from its beginning to its end; answers on an older one change nothing.

    ::

        connecting ──connected──▶ negotiating ──versions agreed──▶ [authenticating ──▶] open

    A session that ends is renewed before: requests wait until those before them are answered and
    this broker has authenticated again (KIP-368).
    """

    def __init__(
        self,
        network: Network,
        endpoint: Endpoint,
        client_id: str,
        clock: Clock,
        new_sasl: NewSaslClient | None,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._new_sasl = new_sasl
        self._exchange: SaslExchange | None = None
        """The authentication that is going on."""
        self._awaits_credentials = False
        """True while a token is fetched with which to authenticate."""
        self._renewal: TimerHandle | None = None
        self._renews = False
        """True while the answers are awaited that come before an authentication."""
        self._negotiated = False
        self._conversation = Conversation(client_id)
        self._waiting: deque[_Asked] = deque()
        self._sent: deque[_Asked] = deque()
        self._open = False
        self._negotiation_size = 0
        self.is_closed = False
        self._transport = network.open(endpoint.host, endpoint.port, self)

    @property
    def received_size(self) -> int:
        """How many bytes have arrived since versions were agreed."""
        return self._transport.received_size - self._negotiation_size if self._negotiated else 0

    def ask(self, asked: _Asked) -> None:
        """Send a request now, or once versions are agreed."""
        if self._open:
            self._send(asked)
        else:
            self._waiting.append(asked)

    def close(self, reason: str) -> None:
        """Close the connection; every request that waits for an answer fails."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._renewal is not None:
            self._renewal.cancel()
        self._transport.close()
        sent, self._sent = self._sent, deque()
        waiting, self._waiting = self._waiting, deque()
        for asked in sent:
            asked.fail(ErrorCode.NETWORK_EXCEPTION, reason)
        for asked in waiting:
            asked.fail(ErrorCode.BROKER_NOT_AVAILABLE, reason)

    # Calls of the transport

    def connected(self) -> None:
        """Negotiate versions first."""
        self._transport.send(self._conversation.request_versions())

    def frame_received(self, frame: memoryview) -> None:
        """Take the answer to the oldest request."""
        if self._open or self._renews:
            response = self._conversation.take(frame)
            self._sent.popleft().complete(response)
            if self._renews and not self._sent and not self.is_closed:
                self._authenticate()
            return
        if self._awaits_credentials:
            raise ProtocolError("an answer came to nothing that was asked")
        if self._exchange is not None:
            self._continue(self._exchange, self._conversation.take(frame))
            return
        version = self._conversation.take_versions(frame)
        if version is not None:
            self._transport.send(self._conversation.request_versions(version))
        elif self._new_sasl is not None:
            self._authenticate()
        else:
            self._begin()

    def _begin(self) -> None:
        """Send what waits."""
        self._open = True
        if not self._negotiated:
            self._negotiated = True
            self._negotiation_size = self._transport.received_size
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            self._send(asked)

    def _authenticate(self) -> None:
        """Say who this broker is, on a new connection or again. ProtocolError ends the
        connection.
        """
        assert self._new_sasl is not None
        self._renews = False
        credentials = self._new_sasl()
        if credentials.done:
            self._begin_exchange(credentials)
        else:
            self._awaits_credentials = True
            credentials.on_done(self._credentials_fetched)

    def _credentials_fetched(self, credentials: Deferred[SaslClient]) -> None:
        self._awaits_credentials = False
        if self.is_closed:
            return
        try:
            self._begin_exchange(credentials)
        except ProtocolError as error:
            self.close(str(error))

    def _begin_exchange(self, credentials: Deferred[SaslClient]) -> None:
        from millstream.client.core.authentication import SaslExchange

        try:
            exchange = self._exchange = SaslExchange(credentials.result())
        except ClientError as error:
            log.warning("%s: this broker cannot say who it is: %s", self.endpoint, error)
            raise ProtocolError(str(error)) from error
        try:
            self._ask_in_exchange(exchange.begin(self._conversation))
        except UnsupportedVersionError as error:
            raise ProtocolError(str(error)) from error

    def _continue(self, exchange: SaslExchange, response: Response) -> None:
        try:
            request = exchange.take(response)
        except ClientError as error:
            log.warning("%s: this broker is not let in: %s", self.endpoint, error)
            raise ProtocolError(str(error)) from error
        if request is not None:
            self._ask_in_exchange(request)
            return
        self._exchange = None
        if exchange.session_lifetime_ms:
            wait_ms = max(exchange.session_lifetime_ms * _RENEWED_AFTER, _LEAST_SESSION_MS)
            self._renewal = self._clock.call_later(wait_ms, self._renew)
        self._begin()

    def _ask_in_exchange(self, request: Request) -> None:
        version = self._conversation.version_for(type(request))
        self._transport.send(self._conversation.ask(request, version))

    def _renew(self) -> None:
        """Authenticate again, once what was sent is answered."""
        if self.is_closed:
            return
        self._open = False
        self._renews = True
        if self._sent:
            return
        try:
            self._authenticate()
        except ProtocolError as error:
            self.close(str(error))

    def closed(self, reason: str) -> None:
        """The connection was closed, or could not be made."""
        self.close(reason)

    def _send(self, asked: _Asked) -> None:
        if asked.outcome.done:
            return  # its time was up before the connection was there
        if self.is_closed:
            asked.fail(ErrorCode.BROKER_NOT_AVAILABLE, "the connection is closed")
            return
        try:
            version = asked.version
            if version is None:
                version = self._conversation.version_for(type(asked.request))
        except UnsupportedVersionError as error:
            asked.fail(ErrorCode.UNSUPPORTED_VERSION, str(error))
            return
        asked.sent = True
        self._sent.append(asked)
        self._transport.send(self._conversation.ask(asked.request, version))


class BrokerChannel:
    """One lane to one broker. ``endpoint`` says where it listens now, None when it is not known;
    a connection to an address of before is given up.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        client_id: str,
        endpoint: Callable[[], Endpoint | None],
        new_sasl: NewSaslClient | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._client_id = client_id
        self._endpoint = endpoint
        self._new_sasl = new_sasl
        self._current: _Incarnation | None = None

    def send(
        self, request: Request, *, timeout_ms: float, version: int | None = None
    ) -> Deferred[Response]:
        """Send a request in the newest common version, or in ``version``; see the table above.

        Records in the answer are views that are valid until the Deferred's callbacks have run.
        """
        asked = _Asked(request, version)
        endpoint = self._endpoint()
        if endpoint is None:
            asked.fail(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is not known")
            return asked.outcome
        incarnation = self._incarnation(endpoint)
        asked.timer = self._clock.call_later(timeout_ms, lambda: self._expire(incarnation, asked))
        incarnation.ask(asked)
        return asked.outcome

    @property
    def received_size(self) -> int:
        """How many bytes of answers have arrived on the present connection: grows while a large one
        arrives.
        """
        return 0 if self._current is None else self._current.received_size

    def close(self, reason: str = "closed by this broker") -> None:
        """Close the connection; every request that waits fails. The next one connects anew."""
        current, self._current = self._current, None
        if current is not None:
            current.close(reason)

    def _incarnation(self, endpoint: Endpoint) -> _Incarnation:
        current = self._current
        if current is not None and current.endpoint != endpoint:
            self.close("the broker has moved")
            current = None
        if current is None or current.is_closed:
            current = self._current = _Incarnation(
                self._network, endpoint, self._client_id, self._clock, self._new_sasl
            )
        return current

    def _expire(self, incarnation: _Incarnation, asked: _Asked) -> None:
        place = f"{incarnation.endpoint.host}:{incarnation.endpoint.port}"
        if asked.sent:
            asked.fail(ErrorCode.REQUEST_TIMED_OUT, f"no answer of {place} in time")
        else:
            asked.fail(ErrorCode.BROKER_NOT_AVAILABLE, f"no connection to {place} in time")
        incarnation.close("a request was not answered in time")


class BrokerChannels:
    """The channels to all other brokers, by broker and lane.

    ``endpoint_of`` answers with a broker's inter-broker endpoint, None when it is not alive.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        *,
        client_id: str,
        endpoint_of: Callable[[BrokerId], Endpoint | None],
        new_sasl: NewSaslClient | None = None,
    ) -> None:
        """``new_sasl`` makes this broker's side of an authentication; None where the listener of
        brokers asks for none.
        """
        self._network = network
        self._new_sasl = new_sasl
        self._clock = clock
        self._client_id = client_id
        self._endpoint_of = endpoint_of
        self._channels: dict[tuple[BrokerId, str], BrokerChannel] = {}

    def channel(self, broker_id: BrokerId, lane: str = "") -> BrokerChannel:
        """Return the channel of a lane, made when it is first asked for."""
        channel = self._channels.get((broker_id, lane))
        if channel is None:
            channel = self._channels[broker_id, lane] = BrokerChannel(
                self._network,
                self._clock,
                self._client_id,
                lambda: self._endpoint_of(broker_id),
                self._new_sasl,
            )
        return channel

    def send(
        self,
        broker_id: BrokerId,
        request: Request,
        timeout_ms: float,
        *,
        version: int | None = None,
        lane: str = "",
    ) -> Deferred[Response]:
        """Send a request to a broker; see :meth:`BrokerChannel.send`."""
        return self.channel(broker_id, lane).send(request, timeout_ms=timeout_ms, version=version)

    def send_between_brokers(
        self, broker_id: BrokerId, request: Request, timeout_ms: float
    ) -> Deferred[Response]:
        """Send one of the messages that only brokers send: they have one version, and a lane of
        their own.
        """
        return self.send(broker_id, request, timeout_ms, version=0, lane=CONTROLLER_LANE)

    def send_about_fetches(
        self, broker_id: BrokerId, request: Request, timeout_ms: float
    ) -> Deferred[Response]:
        """Send a message about who fetches from whom, on a lane of its own: its answer waits for
        brokers that may be ill, and nothing else is to wait behind it.
        """
        return self.send(broker_id, request, timeout_ms, version=0, lane=FETCH_STATES_LANE)

    def close(self) -> None:
        """Close every connection."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
