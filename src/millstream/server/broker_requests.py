"""Requests that this broker's own parts send to brokers: to another one over the network, to this
one straight to its handler.

Coordinators ask the leaders of partitions (transaction markers), partitions ask coordinators (the
verification of transactions, the state of share partitions), and either may well be on this broker,
with or without a cluster. Kafka: ``InterBrokerSendThread``, which connects a broker to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.handlers.request import Answer, ConnectionInfo, Reply, RequestContext
from millstream.handlers.routes import Route, route_of
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.api import APIS, FIRST_INTERNAL_KEY
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import ProduceRequest
from millstream.runtime.services import Services

COORDINATOR_LANE: Final = "coordinator"
"""The connection to another broker that these requests share: none of them may be held for long."""

AUDIT_LOG_LANE: Final = "audit-log"
"""That of the audit log, whose requests wait until their records are committed."""

DEAD_LETTER_LANE: Final = "dead-letters"
"""That of dead letters of share groups, which wait for all replicas."""

LOCAL_PEER: Final = "local"
"""The host in the envelope of a request that this broker sends to itself."""


class BrokerRequests:
    """Sends requests to brokers. A broker that is not started yet answers BROKER_NOT_AVAILABLE."""

    def __init__(self, broker_id: BrokerId, clock: Clock) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._services: Services | None = None

    def begin(self, services: Services) -> None:
        """Serve requests from now on."""
        self._services = services

    def send(
        self, broker_id: BrokerId, request: Request, timeout_ms: int, version: int | None = None
    ) -> Deferred[Response]:
        """Send a request in ``version``, or the highest that both sides know; of an API of brokers
        alone, which is not advertised, the highest there is.

        Fails as ``BrokerChannel.send`` does: BROKER_NOT_AVAILABLE where it was not sent,
        NETWORK_EXCEPTION or REQUEST_TIMED_OUT where nobody knows whether it was served. A request
        to this broker is handled in a later pass of the loop.
        """
        services = self._services
        if services is None or (services.cluster is None and broker_id != self._broker_id):
            refused: Deferred[Response] = Deferred()
            refused.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
            return refused
        if broker_id == self._broker_id:
            return self._handle_here(services, request, timeout_ms, version)
        assert services.cluster is not None
        lane = COORDINATOR_LANE
        if request.API_KEY == ProduceRequest.API_KEY:
            lane = DEAD_LETTER_LANE
        elif request.API_KEY >= FIRST_INTERNAL_KEY:
            lane, version = AUDIT_LOG_LANE, APIS[request.API_KEY].last_version
        return services.cluster.channels.send(
            broker_id, request, timeout_ms, version=version, lane=lane
        )

    def _handle_here(
        self, services: Services, request: Request, timeout_ms: int, version: int | None
    ) -> Deferred[Response]:
        outcome: Deferred[Response] = Deferred()
        timer: TimerHandle | None = None
        route, context = self._route(services, request, version)

        def finish(answered: Deferred[Answer]) -> None:
            if timer is not None:
                timer.cancel()
            if outcome.done:
                return  # it came too late
            try:
                answer = _answer_of(answered, route, context, request)
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(answer)

        def expire() -> None:
            if not outcome.done:
                outcome.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

        def begin() -> None:
            nonlocal timer
            answered = _handled(route.handle(), services, context, request)
            if not answered.done:
                timer = self._clock.call_later(timeout_ms, expire)
            answered.on_done(finish)

        self._clock.call_soon(begin)
        return outcome

    def _route(
        self, services: Services, request: Request, version: int | None
    ) -> tuple[Route, RequestContext]:
        """Return who serves a request to this broker itself, and as what it comes."""
        route = route_of(request.API_KEY)
        assert route is not None, f"API {request.API_KEY} is not served"
        listener = "" if services.cluster is None else services.cluster.listener_name
        context = RequestContext(
            ConnectionInfo(0, listener, LOCAL_PEER, 0, is_own=True),
            request.API_KEY,
            route.last_version if version is None else version,
            0,
            f"broker-{self._broker_id}",
        )
        return route, context


def _answer_of(
    answered: Deferred[Answer], route: Route, context: RequestContext, request: Request
) -> Response:
    """Return what a handler has answered, an error of the whole request as its response."""
    try:
        answer = answered.result()
    except KafkaError as error:
        answer = route.failed()(context, request, error)
    assert answer is not None, "requests between brokers are always answered"
    return answer


def _handled(
    handle: Callable[..., Reply], services: Services, context: RequestContext, request: Request
) -> Deferred[Answer]:
    """Hand a request to its handler."""
    try:
        reply = handle(services, context, request)
    except Exception as error:
        failed: Deferred[Answer] = Deferred()
        failed.fail(error)
        return failed
    if isinstance(reply, Deferred):
        return reply
    if isinstance(reply, Response) or reply is None:
        return Deferred.of(reply)
    return spawn(reply)
