"""Holds clients to their quotas: usage is recorded, answers say how long to wait, and the
connection is muted for as long.

While no quota is set there is no gate: ``services.quotas`` is None, and handlers are called as they
are; `client_quota_switch` puts it there and takes it away. As in Kafka the answer of a client that
has to wait leaves at once (KIP-219), but a Fetch is answered without records. Traffic between
brokers is exempt: their APIs, and what followers ask, on the listener of brokers and (where there
is an authorizer) with ClusterAction. Kafka: ``QuotaManagers``,
``RequestHandlerHelper``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final

from millstream.handlers.access import access_of
from millstream.handlers.request import Answer, Reply, RequestContext
from millstream.model.acl import AclOperation
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.fetch import FetchRequest
from millstream.runtime.client_usage import ClientUsage
from millstream.runtime.services import Services
from millstream.security.quotas import QuotaType
from millstream.security.sasl.connection import Step

Handle = Callable[[Services, RequestContext, Any], Reply]
Refuse = Callable[[RequestContext, Request, Exception], Answer]
Decode = Callable[[memoryview, int], Request]
_Record = Callable[[RequestContext, Any, int, int], int]

_OF_AUTHENTICATION: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
"""What comes before anybody is known."""

_NS_TO_PERCENT: Final = 100 / 1e9


def _is_of_replica(request: FetchRequest) -> bool:
    """Tell whether a Fetch says that it is a follower's."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


_SAYS_BROKER: Final[Mapping[int, Callable[[Any], bool]]] = {
    ApiKey.FETCH: _is_of_replica,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda request: request.replica_id >= 0,
    **dict.fromkeys(
        (
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        lambda _: True,
    ),
}
"""What brokers ask of each other, and how such a request says so."""


class QuotaGate:
    """Records what handlers use on behalf of clients, and mutes connections."""

    def __init__(self, usage: ClientUsage, clock: Clock) -> None:
        self.usage = usage
        self.quotas = usage.quotas
        self._of_time = usage.quotas.by_type[QuotaType.REQUEST]
        self._clock = clock
        self._frame_size = 0
        """The size of the frame that was decoded last: it is handled next."""

    def guard(
        self, key: int, decode: Decode, handle: Handle, refuse: Refuse
    ) -> tuple[Decode, Handle]:
        """Return the decoder and the handler of an API that record what its clients use.
        ``refuse`` makes the answer to a request whose handler fails: that is usage as well.
        """
        if key >= FIRST_INTERNAL_KEY:
            return decode, handle
        if key == ApiKey.PRODUCE:
            return self._measured(decode), self._guarded(key, handle, refuse, self._produced)
        if key == ApiKey.FETCH:
            handle = _limited_fetch(self.usage, handle)
        return decode, self._guarded(key, handle, refuse, self._handled)

    def _measured(self, decode: Decode) -> Decode:
        def decode_and_measure(frame: memoryview, position: int) -> Request:
            self._frame_size = len(frame) + 4
            return decode(frame, position)

        return decode_and_measure

    def _guarded(self, key: int, handle: Handle, refuse: Refuse, record: _Record) -> Handle:
        is_of_authentication = key in _OF_AUTHENTICATION
        says_broker = _SAYS_BROKER.get(key)

        def guarded(services: Services, context: RequestContext, request: Any) -> Reply:
            if is_of_authentication and _is_authenticating(context):
                return handle(services, context, request)
            size = self._frame_size
            began_ns = perf_counter_ns()
            reply: Answer | Deferred[Answer]
            try:
                called = handle(services, context, request)
                reply = called if isinstance(called, Response) else _available(called)
            except (ConnectionClosedError, ProtocolError):
                raise
            except Exception as error:
                reply = refuse(context, request, error)
            if says_broker is not None and says_broker(request) and _is_broker(services, context):
                return reply
            throttle_ms = record(context, request, size, began_ns)
            if isinstance(reply, Deferred):
                _mute(context, throttle_ms)
                return _later(context, request, reply, throttle_ms, refuse)
            if throttle_ms or getattr(reply, "throttle_time_ms", 0):
                return self._muted(context, reply, throttle_ms)
            return reply

        return guarded

    def _muted(self, context: RequestContext, reply: Answer, throttle_ms: int) -> Deferred[Answer]:
        """Mute the connection and tell the client. What is answered in a later pass of the loop
        ends this one: frames that came with this one are not handled any more.
        """
        _mute(context, _tell(reply, throttle_ms))
        answered: Deferred[Answer] = Deferred()
        self._clock.call_soon(lambda: answered.complete(reply))
        return answered

    # A request is recorded when it is handled: many may be before one is answered. These return how
    # long its client has to wait.

    def _handled(self, context: RequestContext, _: Any, __: int, began_ns: int) -> int:
        if not self._of_time.is_limited:
            return 0
        percent = (perf_counter_ns() - began_ns) * _NS_TO_PERCENT
        return self.usage.handled(context.connection.principal.name, context.client_id, percent)

    def _produced(self, context: RequestContext, request: Any, size: int, began_ns: int) -> int:
        user = context.connection.principal.name
        throttle_ms = self.usage.produced(user, context.client_id, size)
        if request.acks == 0 or not self._of_time.is_limited:
            return throttle_ms
        return max(throttle_ms, self._handled(context, request, size, began_ns))


def _limited_fetch(usage: ClientUsage, handle: Handle) -> Handle:
    """Return a handler of Fetch that gives a consumer no more at once than its quota lets through
    in all of its windows: more would be refused for ever (Kafka: ``KafkaApis.handleFetchRequest``).
    """

    def limited(services: Services, context: RequestContext, request: Any) -> Reply:
        if not _is_of_replica(request) or services.cluster is None:
            user = context.connection.principal.name
            limit = usage.max_fetch_bytes(user, context.client_id, request.max_bytes)
            request.max_bytes, request.min_bytes = limit, min(request.min_bytes, limit)
        return handle(services, context, request)

    return limited


def _available(reply: Reply) -> Answer | Deferred[Answer]:
    """Return what a handler answers, as soon as it can be had."""
    if isinstance(reply, Response) or reply is None:
        return reply
    later = reply if isinstance(reply, Deferred) else spawn(reply)
    return later.result() if later.done else later


def _is_authenticating(context: RequestContext) -> bool:
    """Tell whether a request belongs to an authentication, the first or another one: that is
    nobody's usage, and is answered at once (Kafka: ``SaslServerAuthenticator`` answers itself).
    """
    authentication = context.connection.authentication
    if authentication is None:
        return False
    if authentication.step is not Step.COMPLETE:
        return True
    return context.api_key == ApiKey.SASL_HANDSHAKE and authentication.session_ends_ms is not None


def _later(
    context: RequestContext,
    request: Request,
    reply: Deferred[Answer],
    throttle_ms: int,
    refuse: Refuse,
) -> Deferred[Answer]:
    outcome: Deferred[Answer] = Deferred()

    def finish(settled: Deferred[Answer]) -> None:
        try:
            answer = settled.result()
        except (ConnectionClosedError, ProtocolError) as error:  # these close the connection
            outcome.fail(error)
            return
        except Exception as error:
            answer = refuse(context, request, error)
        if _tell(answer, throttle_ms) > throttle_ms:
            _mute(context, _tell(answer, 0))
        outcome.complete(answer)

    reply.on_done(finish)
    return outcome


def _tell(answer: Answer, throttle_ms: int) -> int:
    """Put into an answer how long to wait, unless its handler has told of a longer time; return
    the longer one.
    """
    throttle_ms = max(throttle_ms, getattr(answer, "throttle_time_ms", 0))
    if throttle_ms and answer is not None and hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms
    return throttle_ms


def _mute(context: RequestContext, throttle_ms: int) -> None:
    """Have nothing more of the client handled for a while."""
    if throttle_ms and context.connection.mute is not None:
        context.connection.mute(throttle_ms)


def _is_broker(services: Services, context: RequestContext) -> bool:
    """Tell whether a request that says it is another broker's is one."""
    cluster = services.cluster
    if cluster is None or context.connection.listener != cluster.listener_name:
        return False
    access = access_of(services, context)
    return access is None or access.on_cluster(AclOperation.CLUSTER_ACTION, tell_denied=False)
