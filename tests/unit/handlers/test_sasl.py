"""SASL on a plaintext listener: refused as out of order, and the connection goes on."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("mechanism", ["PLAIN", ""])
def test_there_is_no_mechanism(broker: AdminBroker, mechanism: str, version: int) -> None:
    answer = broker.call(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.ILLEGAL_SASL_STATE
    assert answer.mechanisms == []


@pytest.mark.parametrize("version", range(3))
def test_nobody_has_to_say_who_they_are(broker: AdminBroker, version: int) -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret")
    answer = broker.call(request, version, SaslAuthenticateResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.ILLEGAL_SASL_STATE
    told = "SaslAuthenticate request received after successful authentication"
    assert answer.error_message == told
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
