"""SASL at the brokers of a twin cluster, with the machines of a real broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.client_twin.cluster import TwinBroker, TwinCluster

from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.security.sasl.mechanism import SaslAuthenticationError, SaslServer
from millstream.security.sasl.oauthbearer import (
    BearerToken,
    InvalidTokenError,
    OAuthBearerServer,
)
from millstream.security.sasl.plain import PlainServer, PlainUsers
from millstream.security.sasl.scram import ScramServer
from millstream.security.sasl.scram_credential import (
    SCRAM_MECHANISMS,
    ScramDecoys,
    make_credential,
)


class TwinAuthentication:
    """One user, ``ann``, whose password is ``secret`` and whose token is ``token-of-ann``.

    For one connection at a time.
    """

    def __init__(self, cluster: TwinCluster) -> None:
        self.session_lifetime_ms = 0
        self.password = "secret"
        self.exchanges = 0
        """Exchanges that were complete."""
        self.enabled: dict[str, Callable[[], SaslServer]] = {
            "PLAIN": lambda: PlainServer(PlainUsers({"ann": self.password})),
            "OAUTHBEARER": lambda: OAuthBearerServer(_validate, lambda _: None),
            **{name: partial(self._scram, name) for name in SCRAM_MECHANISMS},
        }
        self._server: SaslServer | None = None
        cluster.handlers[SaslHandshakeRequest] = self._handshake
        cluster.handlers[SaslAuthenticateRequest] = self._authenticate

    def _scram(self, name: str) -> SaslServer:
        mechanism = SCRAM_MECHANISMS[name]
        credential = make_credential(mechanism, self.password, salt=b"0123456789", iterations=4096)
        return ScramServer(
            mechanism,
            find=lambda user: credential if user == "ann" else None,
            decoys=ScramDecoys(b"decoys"),
            nonce="of-the-broker",
        )

    def _handshake(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, SaslHandshakeRequest)
        known = self.enabled.get(request.mechanism)
        error = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._server = known() if known else None
        return SaslHandshakeResponse(error_code=error.code, mechanisms=list(self.enabled))

    def _authenticate(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, SaslAuthenticateRequest)
        assert self._server is not None
        try:
            challenge = self._server.evaluate(request.auth_bytes)
        except SaslAuthenticationError as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED.code,
                error_message=str(error),
                auth_bytes=b"",
            )
        is_done = self._server.authenticated is not None
        self.exchanges += is_done
        return SaslAuthenticateResponse(
            error_code=0,
            error_message=None,
            auth_bytes=challenge,
            session_lifetime_ms=self.session_lifetime_ms if is_done else 0,
        )


def _validate(token: str) -> BearerToken:
    if token != "token-of-ann":
        raise InvalidTokenError("another token")
    return BearerToken("ann", expires_at_ms=1 << 60)
