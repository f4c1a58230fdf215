"""SaslHandshake (key 17), versions 0 and 1.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        SaslAuthenticate carries the tokens that follow (KIP-152)
=======  ====================================================================================

Every listener is plaintext, where a connection counts as authenticated from the start: the answer
is ILLEGAL_SASL_STATE and no mechanism, and the connection goes on (Kafka:
``KafkaApis.handleSaslHandshakeRequest``).
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Refuse: the connection is authenticated already."""
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)


def failed(
    context: RequestContext, request: SaslHandshakeRequest, error: KafkaError
) -> SaslHandshakeResponse:
    """Refuse with the error and no mechanisms."""
    return SaslHandshakeResponse(error_code=error.error.code, mechanisms=[])
