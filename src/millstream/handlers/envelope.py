"""Envelope (key 10008), version 0: a broker hands a client's request on to the controller.

Served on the inter-broker listener of a broker in a cluster. The request inside is handled as if
its client were connected to this broker: under the client's principal and host. NOT_CONTROLLER is
the answer of a broker that is not the controller; nothing is handed on twice.
"""

from __future__ import annotations

from millstream.handlers.request import Answer, ConnectionInfo, RequestContext
from millstream.handlers.routes import FORWARDED, ROUTES
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.protocol.codec import request_decoder
from millstream.protocol.message import Response
from millstream.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    """Handle the request inside."""
    services.controller.check_active()
    route = ROUTES.get(request.api_key)
    if (
        route is None
        or route.key not in FORWARDED
        or not route.first_version <= request.api_version <= route.last_version
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"version {request.api_version} of API {request.api_key} is not handed on",
        )
    inner = request_decoder(request.api_key, request.api_version)(memoryview(request.body), 0)
    origin = context.connection
    client = RequestContext(
        ConnectionInfo(
            origin.connection_id,
            request.listener,
            request.client_host,
            0,
            principal=KafkaPrincipal(
                request.principal_type, request.principal_name, request.token_authenticated
            ),
        ),
        request.api_key,
        request.api_version,
        context.correlation_id,
        request.client_id,
    )
    answer: Answer
    try:
        handle = route.handle_of(services)
        if services.audit is not None:
            from millstream.handlers.audited import audited

            by = str(origin.principal)
            handle = audited(services.audit, services, route, handle, forwarded_by=by)
        reply = handle(services, client, inner)
        if isinstance(reply, Response) or reply is None:
            answer = reply
        else:
            answer = await (reply if isinstance(reply, Deferred) else spawn(reply))
    except KafkaError as error:
        if error.error is ErrorCode.NOT_CONTROLLER:
            raise
        answer = route.failed()(client, inner, error)
    assert answer is not None, "what is handed on is always answered"
    return EnvelopeResponse(body=answer.encode_body(request.api_version))


def failed(
    context: RequestContext, request: EnvelopeRequest, error: KafkaError
) -> EnvelopeResponse:
    """Refuse the request."""
    return EnvelopeResponse(error_code=error.error.code, error_message=error.message)
