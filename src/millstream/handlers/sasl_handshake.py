"""SaslHandshake (key 17), versions 0 and 1.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        SaslAuthenticate carries the tokens that follow (KIP-152)
=======  ====================================================================================

On a listener with SASL a client chooses its mechanism; a mechanism that there is not is answered
with UNSUPPORTED_SASL_MECHANISM and those that there are, and the connection is closed
(``server.sasl_session``). Who is authenticated already, as everybody is on a listener without SASL,
is answered with ILLEGAL_SASL_STATE and no mechanism, and the connection goes on, unless its session
has an end: then it authenticates again (KIP-368).
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.runtime.services import Services
from millstream.security.sasl.connection import Now


def handle(
    services: Services, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Begin an authentication, or refuse."""
    authentication = context.connection.authentication
    if authentication is None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
    clock = services.clock
    authentication.handshake(
        request.mechanism,
        version=context.version,
        now=Now(clock.now_ms(), clock.monotonic_ms()),
    )
    return SaslHandshakeResponse(error_code=0, mechanisms=[*authentication.mechanism_names])


def failed(
    context: RequestContext, request: SaslHandshakeRequest, error: KafkaError
) -> SaslHandshakeResponse:
    """Refuse with the error, and the mechanisms where another one may be chosen."""
    authentication = context.connection.authentication
    names: list[str] = []
    if authentication is not None and error.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        names += authentication.mechanism_names
    return SaslHandshakeResponse(error_code=error.error.code, mechanisms=names)
