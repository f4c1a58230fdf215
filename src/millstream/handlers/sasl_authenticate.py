"""SaslAuthenticate (key 36), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        how long the authentication holds (KIP-368)
2        flexible
=======  ====================================================================================

Every listener is plaintext, where a connection counts as authenticated from the start: the answer
is ILLEGAL_SASL_STATE, and the connection goes on (Kafka:
``KafkaApis.handleSaslAuthenticateRequest``).
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse: the connection is authenticated already."""
    raise KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )


def failed(
    context: RequestContext, request: SaslAuthenticateRequest, error: KafkaError
) -> SaslAuthenticateResponse:
    """Refuse with the error and no token."""
    return SaslAuthenticateResponse(
        error_code=error.error.code, error_message=error.message, auth_bytes=b""
    )
