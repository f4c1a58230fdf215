"""One connection to one broker: established on demand, closed when it fails or is idle.

::

    IDLE --send--> WAITING --back-off--> CONNECTING --connected--> NEGOTIATING --versions--> READY
      ^                                      |                         |                      |
      +------------- failed, timed out, closed, idle: requests fail -------------------+

``WAITING`` is left out when the last attempt did not fail. With SASL ``AUTHENTICATING`` comes
before ``READY``, and again before the session ends (KIP-368): requests wait meanwhile, and answers
to earlier ones arrive first. A connection that is unused by then is ``STALE`` until the next
request. A request whose answer does not come in time closes the connection, because later responses
could not arrive either; all requests in flight fail with it (Kafka:
``NetworkClient.handleTimedOutRequests``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from millstream.client.conversation import Conversation
from millstream.client.core.authentication import Authentication
from millstream.client.core.connection_attempt import ConnectionAttempt, State
from millstream.client.core.connection_failure import failure_of
from millstream.client.core.frames import FrameAssembler, FrameMemory
from millstream.client.core.loop import ClientLoop, TimerHandle, Transport
from millstream.client.core.settings import ClientSettings
from millstream.client.core.waiting import backoff_ms
from millstream.client.errors import (
    ClientError,
    ClosedError,
    ConnectionFailedError,
    RequestValueError,
    TimedOutError,
)
from millstream.client.settings import Address
from millstream.model.deferred import Deferred
from millstream.model.errors import MillstreamError, ProtocolError
from millstream.protocol.encoding import MessageError
from millstream.protocol.message import Request, Response
from millstream.records.crc32c import Buffer


@dataclass(slots=True, eq=False)
class Asked:
    """A request and the cell for its answer."""

    request: Request
    answer: Deferred[Response]
    deadline_ms: float
    version: int | None
    """The version to send it in; None is the newest common one up to ``max_version``."""
    max_version: int | None
    answered: bool


_NEVER: Final = float("inf")
_ABANDONED_MS: Final = 2_000
"""A connection that failed and is not tried again for so long is not wanted any more."""

log = logging.getLogger("millstream.client.connection")


class NodeConnection:
    """Requests to one broker, answered in order."""

    def __init__(
        self,
        loop: ClientLoop,
        address: Address,
        settings: ClientSettings,
        on_failure: Callable[[], None] = lambda: None,
        *,
        memory: FrameMemory | None = None,
    ) -> None:
        """With ``memory`` a large answer ends with the next one, which is read into it."""
        self.address = address
        self.state = State.IDLE
        self.failures = 0
        """Attempts in a row that did not end in READY."""
        self.failure: ClientError | None = None
        """Why the last one that failed did."""
        self._loop = loop
        self._settings = settings
        self._on_failure = on_failure
        self._conversation = Conversation(settings.client_id)
        self._memory = memory
        self._frames = FrameAssembler(memory)
        self._attempt: ConnectionAttempt | None = None
        self._transport: Transport | None = None
        self._unsent: deque[Asked] = deque()
        self._in_flight: deque[Asked] = deque()
        self._leaving: list[Asked] = []
        """Requests that expect no response, until the system has their bytes."""
        self._ready_waiters: list[Deferred[None]] = []
        self._retry_at_ms = 0.0
        self._setup_timer: TimerHandle | None = None
        self._watch: TimerHandle | None = None
        self._watch_at_ms = _NEVER
        self._used_at_ms = loop.now_ms()
        self._muted_until_ms = 0.0
        self._throttle: TimerHandle | None = None
        self._authentication: Authentication | None = None
        self._opening_answers: int | None = None
        """How many answers had come when this connection was ready first."""
        self._closed = False

    @property
    def outstanding(self) -> int:
        """Requests without an answer, sent or not."""
        return len(self._in_flight) + len(self._unsent) + len(self._leaving)

    @property
    def is_backing_off(self) -> bool:
        """True while the last attempt failed and the next has not been made."""
        return self.failures > 0 and self.state in (State.IDLE, State.WAITING)

    @property
    def is_failing(self) -> bool:
        """True if the last attempt failed, and somebody goes on trying."""
        if self.failures == 0:
            return False
        is_idle = self.state is State.IDLE
        return not is_idle or self._loop.now_ms() < self._retry_at_ms + _ABANDONED_MS

    @property
    def retry_at_ms(self) -> float:
        """The time of the next attempt, on the loop's clock."""
        return self._retry_at_ms

    @property
    def is_muted(self) -> bool:
        """True while the broker's throttle lasts (KIP-219)."""
        return self._loop.now_ms() < self._muted_until_ms

    @property
    def conversation(self) -> Conversation:
        """The negotiated versions, which are known while the state is READY."""
        return self._conversation

    @property
    def _is_answered(self) -> bool:
        """True once the broker has answered a request other than those that open a connection."""
        opening = self._opening_answers
        return opening is not None and self._conversation.answers > opening

    # --- asking ----------------------------------------------------------------------------------

    def ready(self) -> Deferred[None]:
        """Return a Deferred that completes once requests can be sent, or fails with the reason why
        they cannot.
        """
        cell: Deferred[None] = Deferred()
        if self._closed:
            cell.fail(ClosedError("the client is closed"))
        elif self.state is State.READY and self.is_muted:
            self._loop.call_at(self._muted_until_ms, lambda: cell.complete(None))
        elif self.state is State.READY:
            cell.complete(None)
        else:
            self._ready_waiters.append(cell)
            self._begin()
        return cell

    def ask(self, asked: Asked) -> None:
        """Send a request as soon as that is possible."""
        if self._closed:
            asked.answer.fail(ClosedError("the client is closed"))
            return
        if self.state is State.READY and not self._unsent and not self.is_muted:
            self._send(asked)
            return
        self._unsent.append(asked)
        self._watch_for(asked.deadline_ms)
        if self.state is not State.READY:
            self._begin()

    def close(self, error: ClientError | None = None) -> None:
        """Hang up for good; requests fail."""
        self._closed = True
        self._disconnect(error or ClosedError("the client was closed"), failed=False)

    # --- connecting ------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.state is State.STALE and self._authentication is not None:
            self._authentication.begin()
        if self.state is not State.IDLE:
            return
        if self._loop.now_ms() < self._retry_at_ms:
            self.state = State.WAITING
            self._setup_timer = self._loop.call_at(self._retry_at_ms, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self.state = State.CONNECTING
        self._conversation = Conversation(self._settings.client_id)
        self._frames = FrameAssembler(self._memory)
        self._attempt = ConnectionAttempt(self)
        setup_ms = backoff_ms(
            self._loop,
            self.failures,
            self._settings.socket_connection_setup_timeout_ms,
            self._settings.socket_connection_setup_timeout_max_ms,
        )
        self._setup_timer = self._loop.call_at(self._loop.now_ms() + setup_ms, self._give_up)
        self._opening_answers = None
        tls = self._loop.security.tls
        if tls is None:
            self._transport = self._loop.connect(self.address, self._attempt)
        else:
            # Loaded here: a client without TLS does not need it.
            from millstream.client.core.tls import TlsTransport

            try:
                secured = TlsTransport(tls, self.address.host, self._attempt)
            except ConnectionFailedError as error:
                # Later: who asks has not been told yet that it has to wait.
                self._loop.call_soon(partial(self._attempt.closed, error))
                return
            self._transport = secured.over(self._loop.connect(self.address, secured))

    def _give_up(self) -> None:
        what = None if self._authentication is None else self._authentication.waits_for
        told = "" if what is None else f": still waiting for {what}"
        self._disconnect(
            TimedOutError(f"no connection to the broker at {self.address} in time{told}"),
            failed=True,
        )

    def on_connected(self) -> None:
        """Send the first ApiVersions request, to learn the broker's versions."""
        self.state = State.NEGOTIATING
        self._write(self._conversation.request_versions().join())

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of a partial response."""
        return self._frames.room

    def on_filled(self, count: int) -> None:
        """See :attr:`room`."""
        self._take_frames(self._frames.fill(count))

    def on_received(self, data: Buffer) -> None:
        """Handle the complete responses in the received bytes."""
        self._take_frames(self._frames.take(data))

    def _take_frames(self, frames: Iterator[memoryview]) -> None:
        try:
            for frame in frames:
                if self.state is State.NEGOTIATING:
                    self._take_versions(frame)
                else:
                    self._take_answer(frame)
                if self._transport is None:
                    return
        except ProtocolError as error:
            failure = ConnectionFailedError(
                f"the broker at {self.address} does not speak the Kafka protocol ({error})"
            )
            self._disconnect(failure, failed=True)
        except Exception:
            # The callback of a response raised. The rest of the received bytes is lost.
            failure = ConnectionFailedError(f"an answer of {self.address} could not be handled")
            self._disconnect(failure, failed=True)
            raise

    def on_closed(self, error: OSError | ClientError | None) -> None:
        """Fail all outstanding requests; the next request reconnects."""
        failure = failure_of(
            self.address,
            error,
            self.state,
            self._loop.security,
            is_answered=self._is_answered,
            first_bytes=self._frames.partial_size,
        )
        self._disconnect(failure, failed=True)

    def _take_versions(self, frame: memoryview) -> None:
        version = self._conversation.take_versions(frame)
        if version is not None:
            self._write(self._conversation.request_versions(version).join())
            return
        sasl = self._loop.security.sasl
        if sasl is None:
            self.be_ready()
            return
        self._authentication = Authentication(self._loop, self._settings, self.address, sasl, self)
        self._authentication.begin()

    def be_ready(self) -> None:
        """Send what waits, and what comes."""
        if self._opening_answers is None:
            self._opening_answers = self._conversation.answers
        if self._setup_timer is not None:
            self._setup_timer.cancel()
        self.state = State.READY
        self.failures = 0
        self._used_at_ms = self._loop.now_ms()
        self._watch_for(self._used_at_ms + self._settings.connections_max_idle_ms)
        waiters, self._ready_waiters = self._ready_waiters, []
        self._send_unsent()
        for waiter in waiters:
            waiter.complete(None)

    # --- for the authentication ------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True while requests are sent."""
        return self.state is State.READY

    def is_used_since(self, when_ms: float) -> bool:
        """Return True if there are requests, or were since then."""
        return bool(self.outstanding) or self._used_at_ms > when_ms

    def ask_at_once(self, request: Request) -> Deferred[Response]:
        """Send a request of the exchange, before all that wait."""
        answer: Deferred[Response] = Deferred()
        deadline_ms = self._loop.now_ms() + self._settings.request_timeout_ms
        self._send(Asked(request, answer, deadline_ms, None, None, answered=True))
        return answer

    def suspend(self) -> None:
        """Let requests wait until :meth:`be_ready`."""
        self.state = State.AUTHENTICATING

    def be_stale(self) -> None:
        """Authenticate anew before the next request."""
        self.state = State.STALE

    def be_refused(self, error: ClientError) -> None:
        """Close the connection: it could not be authenticated."""
        self._disconnect(error, failed=True)

    # --- requests and answers --------------------------------------------------------------------

    def _unmute(self) -> None:
        self._throttle = None
        if self.is_muted:
            # The broker has throttled once more, or the loop is early.
            self._throttle = self._loop.call_at(self._muted_until_ms, self._unmute)
        else:
            self._send_unsent()

    def _send_unsent(self) -> None:
        while self._unsent and self.state is State.READY and not self.is_muted:
            self._send(self._unsent.popleft())

    def _send(self, asked: Asked) -> None:
        try:
            version = (
                self._conversation.version_for(type(asked.request), asked.max_version)
                if asked.version is None
                else asked.version
            )
            outgoing = self._conversation.ask(asked.request, version, answered=asked.answered)
        except MessageError as error:
            asked.answer.fail(RequestValueError(str(error)))
            return
        except MillstreamError as error:
            asked.answer.fail(error)
            return
        self._used_at_ms = self._loop.now_ms()
        (self._in_flight if asked.answered else self._leaving).append(asked)
        self._watch_for(asked.deadline_ms)
        on_sent = None if asked.answered else partial(self._left, asked)
        self._write_pieces(cast("list[Buffer]", outgoing.pieces), on_sent)

    def _left(self, asked: Asked) -> None:
        self._leaving.remove(asked)
        asked.answer.complete(cast(Response, None))

    def _take_answer(self, frame: memoryview) -> None:
        response = self._conversation.take(frame)
        asked = self._in_flight.popleft()
        self._used_at_ms = self._loop.now_ms()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._muted_until_ms = max(self._muted_until_ms, self._used_at_ms + throttle_ms)
            if self._throttle is None:
                self._throttle = self._loop.call_at(self._muted_until_ms, self._unmute)
        asked.answer.complete(response)

    def _write(self, data: bytes) -> None:
        self._write_pieces([data])

    def _write_pieces(
        self, pieces: list[Buffer], on_sent: Callable[[], None] | None = None
    ) -> None:
        assert self._transport is not None
        self._transport.write(pieces, on_sent)

    # --- the end of things -----------------------------------------------------------------------

    def _watch_for(self, when_ms: float) -> None:
        """Schedule a check of this connection at ``when_ms``, unless an earlier one is
        scheduled.
        """
        if when_ms >= self._watch_at_ms:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at_ms = when_ms
        self._watch = self._loop.call_at(when_ms, self._look_after)

    def _look_after(self) -> None:
        self._watch_at_ms = _NEVER
        self._watch = None
        now = self._loop.now_ms()
        sent = (*self._in_flight, *self._leaving)
        if any(asked.deadline_ms <= now for asked in sent):
            name = type(sent[0].request).__name__.removesuffix("Request")
            failure = TimedOutError(
                f"the broker at {self.address} did not answer {name} in time (request.timeout.ms)"
            )
            self._disconnect(failure, failed=True)
            return
        self._expire_unsent(now)
        idle_at = self._used_at_ms + self._settings.connections_max_idle_ms
        is_open = self.state in (State.READY, State.STALE)
        if is_open and not self.outstanding and idle_at <= now:
            self._disconnect(ConnectionFailedError("idle"), failed=False)
            return
        deadlines = [asked.deadline_ms for asked in (*sent, *self._unsent)]
        if is_open:
            # What is outstanding uses the connection when it is answered, which is later than now.
            least_ms = max(self._settings.connections_max_idle_ms, 1)
            deadlines.append(idle_at if idle_at > now else now + least_ms)
        if deadlines:
            self._watch_for(min(deadlines))

    def _expire_unsent(self, now: float) -> None:
        expired = [asked for asked in self._unsent if asked.deadline_ms <= now]
        for asked in expired:
            self._unsent.remove(asked)
        for asked in expired:
            asked.answer.fail(
                TimedOutError(f"no connection to the broker at {self.address} in time")
            )

    def _disconnect(self, error: ClientError, *, failed: bool) -> None:
        for timer in (self._setup_timer, self._watch, self._throttle):
            if timer is not None:
                timer.cancel()
        self._setup_timer = self._watch = self._throttle = None
        if self._authentication is not None:
            self._authentication.close()
            self._authentication = None
        self._watch_at_ms = _NEVER
        if self._attempt is not None:
            self._attempt.owner = None
        if self._transport is not None:
            self._transport.close()
        self._attempt = self._transport = None
        self.state = State.IDLE
        self._muted_until_ms = 0.0
        if failed:
            log.info("%s", error)
            self.failure = error
            self._retry_at_ms = self._loop.now_ms() + backoff_ms(
                self._loop,
                self.failures,
                self._settings.reconnect_backoff_ms,
                self._settings.reconnect_backoff_max_ms,
            )
            self.failures += 1
        lost = [*self._in_flight, *self._leaving, *self._unsent]
        self._in_flight.clear()
        self._leaving.clear()
        self._unsent.clear()
        waiters, self._ready_waiters = self._ready_waiters, []
        if failed:
            self._on_failure()
        for asked in lost:
            asked.answer.fail(error)
        for waiter in waiters:
            waiter.fail(error)
