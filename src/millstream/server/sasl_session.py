"""Serves one connection of a listener with SASL: nothing but its authentication, then everything.

Kafka: ``SaslServerAuthenticator``, ``Selector`` (failed authentications), ``SocketServer`` (expired
sessions). Before it is authenticated a connection is served ApiVersions, SaslHandshake and
SaslAuthenticate, each where it belongs; anything else closes it, before it is decoded. The first
two are answered with ILLEGAL_SASL_STATE between tokens. A failed authentication is answered, and
the connection closed, after `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct as Format
from typing import Final

from millstream.handlers.request import ConnectionInfo
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError, KafkaError, ProtocolError
from millstream.net.connection import LastAnswerError, Served
from millstream.protocol.api import ApiKey
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.authentication.listener_authentication import AuthenticationCounts
from millstream.runtime.services import Services
from millstream.security.audit.kinds import EventKind, Outcome
from millstream.security.sasl.connection import (
    ConnectionAuthentication,
    Now,
    Step,
)

log = logging.getLogger(__name__)

_SIZE: Final = Format(">i")
_REFUSED_IN_WORDS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
"""What is decoded, and answered with an error, where a token has to come."""
_MAX_REFUSED_VERSIONS: Final = 10
"""Clients ask a second time, in a version that is served. Whoever goes on asking wants answers that
are many times larger than its requests.
"""


class SaslSession:
    """A ``net.peer.Session``. ``serve_request`` answers a request that may be served."""

    __slots__ = (
        "_authentication",
        "_connection",
        "_counts",
        "_end",
        "_frames",
        "_max_frame_bytes_after",
        "_on_authenticated",
        "_refused_versions",
        "_serve_request",
        "_services",
        "_timer",
        "max_frame_bytes",
    )

    def __init__(
        self,
        services: Services,
        connection: ConnectionInfo,
        authentication: ConnectionAuthentication,
        *,
        serve_request: Callable[[memoryview], Served],
        end: Callable[[], None],
        counts: AuthenticationCounts,
        max_frame_bytes: int,
        on_authenticated: Callable[[], None],
    ) -> None:
        """``end`` drops what waits on behalf of the connection; ``max_frame_bytes`` holds until the
        client is authenticated, ``on_authenticated`` is called then.
        """
        self._services = services
        self._connection = connection
        self._authentication = authentication
        self._serve_request = serve_request
        self._end = end
        self._counts = counts
        self._on_authenticated = on_authenticated
        self._timer: TimerHandle | None = None
        self._frames: FrameReader | None = None
        self._max_frame_bytes_after = 0
        self._refused_versions = 0
        self.max_frame_bytes = max_frame_bytes
        connection.authentication = authentication

    @property
    def is_authenticated(self) -> bool:
        """True once the client has said who it is, also while it says so again."""
        authentication = self._authentication
        return authentication.step is Step.COMPLETE or authentication.is_again

    def limit(self, frames: FrameReader) -> None:
        """Have frames refused that are too large for an authentication, by what is announced,
        until it is complete.
        """
        self._frames = frames
        self._max_frame_bytes_after = frames.max_frame_bytes
        frames.max_frame_bytes = min(frames.max_frame_bytes, self.max_frame_bytes)

    def serve(self, frame: memoryview) -> Served:
        """Answer one frame; ProtocolError and ConnectionClosedError end the connection."""
        authentication = self._authentication
        if authentication.step is Step.COMPLETE:
            if authentication.session_ends_ms is None:  # nobody authenticates again here
                return self._serve_request(frame)
            if _key_of(frame) != ApiKey.SASL_HANDSHAKE:
                self._check_session()
                return self._serve_request(frame)
        return self._authenticate(frame)

    def closed(self) -> None:
        """Drop what waits on behalf of the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end()

    def _check_session(self) -> None:
        if self._authentication.has_expired(self._services.clock.monotonic_ms()):
            self._counts.expired_sessions += 1
            self._record(Outcome.EXPIRED)
            raise ConnectionClosedError("the session is over")

    def _authenticate(self, frame: memoryview) -> Served:
        authentication = self._authentication
        was_complete = authentication.step is Step.COMPLETE
        is_again = was_complete or authentication.is_again
        if authentication.takes_raw_tokens:
            answer = self._take_raw_token(bytes(frame))
        elif authentication.admits(_key_of(frame)):
            answer = self._serve_step(frame)
        elif authentication.step is Step.TOKENS:
            answer = self._serve_step(frame) if _key_of(frame) in _REFUSED_IN_WORDS else None
            return self._refuse_later(answer, "another request came during the authentication")
        else:
            raise ProtocolError(
                f"API {_key_of(frame)} came before the authentication: the client speaks another "
                "security protocol, or is none of Kafka"
            )
        if authentication.step is Step.FAILED:
            return self._refuse_later(answer, authentication.failure)
        if authentication.step is Step.COMPLETE and not was_complete:
            self._become(authentication)
            self._record(Outcome.SUCCEEDED, is_again=is_again)
        elif authentication.step is Step.FIRST:
            self._refused_versions += 1
            if self._refused_versions > _MAX_REFUSED_VERSIONS:
                raise ProtocolError("too many invalid ApiVersions requests")
        return answer

    def _serve_step(self, frame: memoryview) -> Outgoing | None:
        """Serve a request that belongs to the authentication."""
        try:
            served = self._serve_request(frame)
        except ConnectionClosedError:
            return None
        assert served is None or isinstance(served, Outgoing), "SASL is answered at once"
        return served

    def _become(self, authentication: ConnectionAuthentication) -> None:
        """Go on as who the client is."""
        if self._frames is not None:
            self._frames.max_frame_bytes = self._max_frame_bytes_after
        self._connection.authenticated_as(authentication.principal)
        self._on_authenticated()
        self._counts.successful += 1

    def _take_raw_token(self, token: bytes) -> Outgoing | None:
        """Answer a token without a header; a failure is not answered (KIP-43)."""
        clock = self._services.clock
        now = Now(clock.now_ms(), clock.monotonic_ms())
        try:
            challenge = self._authentication.authenticate(token, now)
        except (KafkaError, ConnectionClosedError):
            return None
        size = len(challenge.token)
        return Outgoing([_SIZE.pack(size) + challenge.token], 4 + size)

    def _refuse_later(self, answer: Outgoing | None, reason: str) -> Served:
        """Answer and close after a delay: whoever tries passwords waits, and holds nothing here
        but the connection.
        """
        again = self._authentication.is_again
        log.info(
            "Failed %sauthentication of %s on listener %s (%s)",
            "re-" if again else "",
            self._connection.peer_host,
            self._connection.listener,
            _one_line(reason),
        )
        self._authentication.step = Step.FAILED
        self._record(Outcome.FAILED, reason, is_again=again)
        if again:
            self._counts.failed_again += 1
        else:
            self._counts.failed += 1
        outcome: Deferred[Outgoing | None] = Deferred()
        error = LastAnswerError(reason, answer)
        delay_ms = self._services.config.current.connection_failed_authentication_delay_ms
        self._timer = self._services.clock.call_later(delay_ms, lambda: outcome.fail(error))
        return outcome

    def _record(self, outcome: Outcome, reason: str = "", *, is_again: bool = False) -> None:
        """Tell the audit log, if there is one, what became of an authentication."""
        audit = self._services.audit
        if audit is not None and audit.records(EventKind.AUTHENTICATION, outcome):
            from millstream.handlers.audited import origin_of

            origin = origin_of(audit, self._connection)
            audit.authentication(origin, outcome, reason, is_again=is_again)


def _one_line(reason: str) -> str:
    """Return a text for the log, with nothing in it that a client could forge a line with."""
    return "".join(each if each.isprintable() else "?" for each in reason)


def _key_of(frame: memoryview) -> int:
    """Return the API of a request, −1 for a frame that is too short to be one."""
    return frame[0] << 8 | frame[1] if len(frame) > 1 else -1
