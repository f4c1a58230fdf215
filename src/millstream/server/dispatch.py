"""From a request frame to its response: read the header, find the handler, decode, call, encode.

Errors become responses here. A KafkaError raised by a handler is the error of the whole request;
any other exception is a bug, which is logged and answered with UNKNOWN_SERVER_ERROR. A
ProtocolError means invalid bytes from the peer and closes the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.handlers import api_versions
from millstream.handlers.request import Answer, ConnectionInfo, Reply, RequestContext
from millstream.handlers.routes import Route, route_of
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import (
    ConnectionClosedError,
    ErrorCode,
    KafkaError,
    ProtocolError,
)
from millstream.net.connection import Served
from millstream.net.peer import Peer, Session
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey
from millstream.protocol.codec import (
    RequestHeader,
    encode_response,
    request_decoder,
    response_encoder,
)
from millstream.protocol.framing import FrameReader
from millstream.protocol.headers import header_decoder
from millstream.protocol.message import Request, Response
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.services import Services
from millstream.server.audit_switch import AuditSwitch
from millstream.server.client_quota_switch import ClientQuotaSwitch
from millstream.server.metrics.switch import MonitoringSwitch

if TYPE_CHECKING:
    from millstream.runtime.authentication.listener_authentication import ListenerAuthentication
    from millstream.server.machine import Around

log = logging.getLogger(__name__)

Handle = Callable[[Services, RequestContext, Any], Reply]


class _Ready(NamedTuple):
    """One API in one version: its request decoder, its handler, its response encoder."""

    decode: Callable[[memoryview, int], Request]
    handle: Handle
    encode: Callable[[int, Response], Outgoing]


class DispatchSession:
    """Serves the requests of one connection (a ``net.peer.Session``)."""

    __slots__ = ("_connection", "serve")

    def __init__(self, dispatcher: Dispatcher, connection: ConnectionInfo) -> None:
        self._connection = connection
        self.serve: Callable[[memoryview], Served] = partial(dispatcher.serve, connection)
        """Answers one frame."""

    def limit(self, frames: FrameReader) -> None:
        """Set no limit of its own: nobody has to authenticate here."""

    def closed(self) -> None:
        """Drop the parked requests of a closed connection, and what ends with it."""
        abandon, self._connection.abandon = self._connection.abandon, None
        if abandon is not None:
            abandon()
        if self._connection.on_closed is not None:
            self._connection.on_closed()


class Dispatcher:
    """Serves the requests of every connection."""

    def __init__(
        self,
        services: Services,
        authentication: ListenerAuthentication | None = None,
        around: Around | None = None,
    ) -> None:
        """``authentication`` is None for a broker without SASL. ``around`` is put around each
        handler when it is prepared (``server.machine``).
        """
        self._services = services
        self._authentication = authentication
        self._around = around
        self._ready: dict[tuple[int, int], _Ready] = {}
        self._decode_header = header_decoder()
        self._quotas = ClientQuotaSwitch(services, self._ready.clear)
        self.audit = AuditSwitch(services, self._ready.clear)
        self.monitoring = MonitoringSwitch(services, self._ready.clear)

    def open_session(self, peer: Peer) -> Session:
        """Return the session of one connection. Only where clients have to authenticate does it
        look at each frame before it is served.
        """
        connection = ConnectionInfo(
            peer.connection_id,
            peer.listener,
            peer.host,
            peer.port,
            principal=peer.principal,
            mute=peer.mute,
        )
        session = DispatchSession(self, connection)
        authentication = self._authentication
        if authentication is None:
            return session
        mechanisms = authentication.mechanisms(peer.listener)
        if mechanisms is None:
            return session
        from millstream.server.sasl_session import SaslSession

        return SaslSession(
            self._services,
            connection,
            authentication.open(peer.listener),
            serve_request=session.serve,
            end=session.closed,
            counts=authentication.counts,
            max_frame_bytes=mechanisms.max_receive_bytes,
            on_authenticated=peer.on_authenticated,
        )

    def serve(self, connection: ConnectionInfo, frame: memoryview) -> Served:
        """Answer one request; ProtocolError and ConnectionClosedError end the connection."""
        header = self._decode_header(frame)
        ready = self._ready.get((header.key, header.version))
        if header.key >= FIRST_INTERNAL_KEY:
            self._check_inter_broker(connection, header)
        if ready is None:
            route = route_of(header.key)
            if route is None or not route.first_version <= header.version <= route.last_version:
                return _refuse_version(header)
            ready = self._prepare(route, header)
        request = ready.decode(frame, header.body_position)
        context = RequestContext(
            connection, header.key, header.version, header.correlation_id, header.client_id
        )
        try:
            reply = ready.handle(self._services, context, request)
        except (ConnectionClosedError, ProtocolError):
            raise
        except Exception as error:
            reply = _failure(context, request, error)
        if isinstance(reply, Response):
            return ready.encode(header.correlation_id, reply)
        if reply is None:
            return None
        later = reply if isinstance(reply, Deferred) else spawn(reply)
        if later.done:
            return _finish(ready, context, request, later)
        return _later(ready, context, request, later)

    def _check_inter_broker(self, connection: ConnectionInfo, header: RequestHeader) -> None:
        """Raise ConnectionClosedError for an inter-broker request on a client listener."""
        cluster = self._services.cluster
        if cluster is None or connection.listener != cluster.listener_name:
            raise ProtocolError(f"API {header.key} is not served on {connection.listener}")

    def _prepare(self, route: Route, header: RequestHeader) -> _Ready:
        """Load the handler and the codecs of one API in one version, at its first request."""
        key, version = header.key, header.version
        decode: Callable[[memoryview, int], Request] = request_decoder(key, version)
        handle = self.audit.around(route, route.handle_of(self._services))
        gate = self._quotas.active
        if gate is not None:
            decode, handle = gate.guard(key, decode, handle, _failure)
        handle = self.monitoring.around(key, handle)
        if self._around is not None:
            decode, handle = self._around(route, version, decode, handle)
        ready = _Ready(decode, handle, response_encoder(key, version))
        self._ready[key, version] = ready
        return ready


def _refuse_version(header: RequestHeader) -> Outgoing:
    """Answer ApiVersions in every version; close the connection for any other unsupported
    version.
    """
    if header.key == ApiKey.API_VERSIONS:
        return encode_response(
            header.key, 0, header.correlation_id, api_versions.unsupported_version()
        )
    raise ProtocolError(f"version {header.version} of API {header.key} is not served")


def _later(
    ready: _Ready, context: RequestContext, request: Request, reply: Deferred[Answer]
) -> Served:
    outcome: Deferred[Outgoing | None] = Deferred()

    def finish(settled: Deferred[Answer]) -> None:
        try:
            outgoing = _finish(ready, context, request, settled)
        except Exception as error:  # any error closes the connection
            outcome.fail(error)
        else:
            outcome.complete(outgoing)

    reply.on_done(finish)
    return outcome


def _finish(
    ready: _Ready, context: RequestContext, request: Request, settled: Deferred[Answer]
) -> Outgoing | None:
    """Encode the late response of a handler, or the error response for its exception."""
    try:
        answer = settled.result()
    except ConnectionClosedError:
        raise
    except Exception as error:
        answer = _failure(context, request, error)
    return None if answer is None else ready.encode(context.correlation_id, answer)


def _failure(context: RequestContext, request: Request, error: Exception) -> Answer:
    """Return the error response for a whole request."""
    if not isinstance(error, KafkaError):
        log.exception(
            "request %s v%d of client %r at %s failed",
            ApiKey(context.api_key).name,
            context.version,  # client-controlled text is logged as a literal
            context.client_id,
            context.connection.peer_host,
            exc_info=error,
        )
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    route = route_of(context.api_key)
    assert route is not None
    return route.failed()(context, request, error)
