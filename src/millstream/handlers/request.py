"""What a handler is given, and what it may answer.

A handler module defines two functions:

``handle(services, context, request) -> Reply``
    Answers one request. It runs on the loop that owns all state and never blocks. What cannot be
    answered now comes back as a :class:`Deferred`; admin handlers may be ``async def`` and await
    Deferreds (``model.deferred.spawn`` drives them).

``failed(context, request, error) -> Response``
    The same request refused as a whole: the KafkaError's code is put wherever Kafka's
    ``getErrorResponse`` puts it. Dispatch calls it for a KafkaError that left ``handle`` and for
    UNKNOWN_SERVER_ERROR.

Where a request wants no answer (Produce with acks=0), a handler that must refuse it raises
ConnectionClosedError.

Records in a request are views into the connection's buffer: they are valid until ``handle`` returns
(for ``async def``: until its first await), so what outlives that is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.model.topic import TopicId
from millstream.protocol.message import Response

if TYPE_CHECKING:
    from millstream.handlers.access import Access
    from millstream.runtime.services import Services
    from millstream.security.authorizer import ClientDecisions
    from millstream.security.sasl.connection import ConnectionAuthentication

Answer: TypeAlias = Response | None
"""A response, or None when the request wants none (Produce with acks=0)."""

Reply: TypeAlias = Answer | Deferred[Answer] | Coroutine[Deferred[Any], None, Answer]

Handle: TypeAlias = "Callable[[Services, RequestContext, Any], Reply]"
"""Serves one request of an API."""


@dataclass(slots=True)
class ConnectionInfo:
    """Who is at the other end; lives as long as the connection."""

    connection_id: int
    listener: str
    peer_host: str
    peer_port: int
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    principal: KafkaPrincipal = ANONYMOUS
    authentication: ConnectionAuthentication | None = None
    """How far a client has come in saying who it is; None on a listener without SASL."""
    mute: Callable[[float], None] | None = None
    """Has nothing more of this client handled for so many milliseconds; None without a network."""
    decisions: ClientDecisions | None = None
    """What ``principal`` may do, as far as it was asked; see ``access.decisions_of``."""
    readable: Collection[str | TopicId] = frozenset()
    writable: Collection[str | TopicId] = frozenset()
    """Those of ``decisions``."""
    is_own: bool = False
    """True for what this broker asks itself, without a connection: it may do everything."""
    abandon: Callable[[], None] | None = None
    """Set while a request is parked: called when the peer goes, so that nothing waits in vain. One
    is enough, for the requests that park are handled one after the other."""
    on_closed: Callable[[], None] | None = None
    """Set by what outlives a request and ends with the connection: share sessions."""

    def authenticated_as(self, principal: KafkaPrincipal) -> None:
        """Take over who the client has proved to be; what another one might do is forgotten."""
        self.principal = principal
        self.decisions = None
        self.readable = self.writable = frozenset()


@dataclass(slots=True)
class RequestContext:
    """One request's envelope."""

    connection: ConnectionInfo
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None

    def access(self, services: Services) -> Access:
        """Return what the client may do: for ``access_of`` where a request is audited."""
        raise NotImplementedError
