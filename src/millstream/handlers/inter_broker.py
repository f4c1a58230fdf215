"""What the messages between brokers have in common, and requests that are for the controller."""

from __future__ import annotations

from typing import Final, TypeVar

from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from millstream.runtime.membership.cluster_member import ClusterMember
from millstream.runtime.pauses import pause
from millstream.runtime.services import Services

R = TypeVar("R", bound=Response)

FIND_CONTROLLER_MS: Final = 5_000
RETRY_MS: Final = 100

_NOT_SERVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})


def cluster_of(services: Services) -> ClusterMember:
    """Return this broker's part in its cluster; NOT_CONTROLLER for one that is in none."""
    if services.cluster is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is on its own")
    return services.cluster


def is_elsewhere(services: Services) -> bool:
    """True when another broker of the cluster is the controller."""
    return services.cluster is not None and not services.controller.is_active


async def forward(
    services: Services, context: RequestContext, request: Request, answer: type[R]
) -> R:
    """Return the controller's answer to a request that clients may give to any broker.

    The request travels in an envelope, with the client's name. It is sent again as long as it
    surely was not served, for ``FIND_CONTROLLER_MS``: a controller may have fallen just now. After
    that, and where nobody knows whether it was served, NOT_CONTROLLER is raised. The API is one of
    ``routes.FORWARDED``.
    """
    envelope = _envelope(context, request)
    deadline_ms = services.clock.monotonic_ms() + FIND_CONTROLLER_MS
    while is_elsewhere(services):
        assert services.cluster is not None
        try:
            response = await services.cluster.channel.forward(envelope, 0)
            assert isinstance(response, EnvelopeResponse)
            if not response.error_code:
                return answer.decode_body(context.version, response.body)
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        except KafkaError as error:
            is_late = services.clock.monotonic_ms() >= deadline_ms
            if is_late or error.error not in _NOT_SERVED:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, error.message) from error
        await pause(services.clock, RETRY_MS)
    return await _answer_here(services, context, request, answer)


async def _answer_here(
    services: Services, context: RequestContext, request: Request, answer: type[R]
) -> R:
    """Handle the request: this broker has become the controller."""
    from millstream.handlers.routes import ROUTES

    reply = ROUTES[request.API_KEY].handle()(services, context, request)
    if not isinstance(reply, Response) and reply is not None:
        reply = await (reply if isinstance(reply, Deferred) else spawn(reply))
    assert isinstance(reply, answer)
    return reply


def _envelope(context: RequestContext, request: Request) -> EnvelopeRequest:
    connection = context.connection
    return EnvelopeRequest(
        api_key=context.api_key,
        api_version=context.version,
        client_id=context.client_id,
        listener=connection.listener,
        client_host=connection.peer_host,
        principal_type=connection.principal.type,
        principal_name=connection.principal.name,
        token_authenticated=connection.principal.token_authenticated,
        body=request.encode_body(context.version),
    )
