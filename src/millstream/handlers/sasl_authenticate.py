"""SaslAuthenticate (key 36), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        how long the authentication holds (KIP-368)
2        flexible
=======  ====================================================================================

On a listener with SASL the client's tokens, after SaslHandshake in version 1. A failure is
SASL_AUTHENTICATION_FAILED with a text that names no secret and does not tell an unknown user from a
wrong password; ``server.sasl_session`` sends it after a delay and closes the connection. Who is
authenticated already, as everybody is on a listener without SASL, is answered with
ILLEGAL_SASL_STATE, and the connection goes on (Kafka: ``KafkaApis.handleSaslAuthenticateRequest``).
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.runtime.services import Services
from millstream.security.sasl.connection import Now, Step


def handle(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Take a token and answer with the next challenge."""
    authentication = context.connection.authentication
    if authentication is None or authentication.step is not Step.TOKENS:
        raise KafkaError(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )
    clock = services.clock
    challenge = authentication.authenticate(
        bytes(request.auth_bytes), Now(clock.now_ms(), clock.monotonic_ms())
    )
    return SaslAuthenticateResponse(
        error_code=0,
        error_message="",  # Kafka's default for this answer, where others have null
        auth_bytes=challenge.token,
        session_lifetime_ms=challenge.session_ms,
    )


def failed(
    context: RequestContext, request: SaslAuthenticateRequest, error: KafkaError
) -> SaslAuthenticateResponse:
    """Refuse with the error and no token."""
    return SaslAuthenticateResponse(
        error_code=error.error.code, error_message=error.message, auth_bytes=b""
    )
