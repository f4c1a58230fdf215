"""A connection of a listener with SASL, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload
from tests.unit.security.sasl.tokens import jwks, key, signed

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ConfigError, ConnectionClosedError, ErrorCode, ProtocolError
from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.net.connection import LastAnswerError
from millstream.net.peer import Peer
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.framing import FrameReader
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.authentication.delegation_tokens import DelegationTokens
from millstream.runtime.authentication.listener_authentication import ListenerAuthentication
from millstream.runtime.metadata.entity_table import EntityTable
from millstream.security.sasl.oauthbearer import OAuthBearerClient
from millstream.security.sasl.plain import PlainUsers
from millstream.server.sasl_session import SaslSession

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_ann="anns" user_bob="bobs";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "250",
}


class Client:
    """One connection; each request is encoded, served, and its answer decoded."""

    def __init__(self, broker: AdminBroker) -> None:
        self.broker = broker
        session = broker.connect("SASL_PLAINTEXT")
        assert isinstance(session, SaslSession)
        self.session = session
        self.info = session._connection

    def send(self, request: Request, version: int) -> Response:
        served = self.raw(encode_request(request, version, 7, "tester").join()[4:])
        assert isinstance(served, Outgoing)
        return decode_response(request.API_KEY, version, served.join()[4:])[1]

    def raw(self, frame: bytes) -> Outgoing | Deferred[Outgoing | None] | None:
        return self.session.serve(memoryview(bytearray(frame)))

    def refused(self, frame: bytes) -> Outgoing | None:
        """Send what is refused; return the late answer."""
        served = self.raw(frame)
        assert isinstance(served, Deferred)
        clock = self.broker.clock
        clock.advance(249)
        assert not served.done
        clock.advance(1)
        with pytest.raises(LastAnswerError) as caught:
            served.result()
        return caught.value.answer

    def refused_request(self, request: Request, version: int) -> Response:
        answer = self.refused(encode_request(request, version, 7, "tester").join()[4:])
        assert answer is not None
        return decode_response(request.API_KEY, version, answer.join()[4:])[1]

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        answer = self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        assert isinstance(answer, SaslHandshakeResponse)
        return answer

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        answer = self.send(SaslAuthenticateRequest(auth_bytes=token), version)
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    def metadata(self) -> None:
        answer = self.send(MetadataRequest(topics=[]), 12)
        assert isinstance(answer, MetadataResponse)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker(tmp_path, SETTINGS)
    yield broker
    broker.close()


@pytest.fixture
def client(broker: AdminBroker) -> Client:
    return Client(broker)


METADATA = encode_request(MetadataRequest(topics=[]), 12, 7, "tester").join()[4:]


def test_a_client_authenticates_and_is_served(client: Client) -> None:
    versions = client.send(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
    )
    assert isinstance(versions, ApiVersionsResponse)
    assert versions.error_code == 0
    answer = client.handshake()
    assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    assert not client.session.is_authenticated
    assert client.info.principal == ANONYMOUS
    done = client.authenticate(b"\0ann\0anns")
    assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"", 0)
    assert client.session.is_authenticated
    assert client.info.principal == KafkaPrincipal("User", "ann")
    assert client.info.client_software_name == "x"
    client.metadata()
    again = client.handshake()
    assert ErrorCode.of(again.error_code) is ErrorCode.ILLEGAL_SASL_STATE
    assert again.mechanisms == []
    second = client.authenticate(b"\0ann\0anns")
    assert ErrorCode.of(second.error_code) is ErrorCode.ILLEGAL_SASL_STATE
    client.metadata()


def test_raw_tokens_after_a_handshake_of_version_0(client: Client) -> None:
    assert client.handshake(version=0).error_code == 0
    served = client.raw(b"\0ann\0anns")
    assert isinstance(served, Outgoing)
    assert served.join() == b"\0\0\0\0"
    assert client.info.principal == KafkaPrincipal("User", "ann")
    client.metadata()


def test_a_raw_token_that_is_refused_has_no_answer(client: Client) -> None:
    client.handshake(version=0)
    assert client.refused(b"\0ann\0wrong") is None


@pytest.mark.parametrize("steps", range(2))
def test_anything_else_before_the_handshake_closes_the_connection(
    client: Client, steps: int
) -> None:
    if steps:
        client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        with pytest.raises(ProtocolError):  # versions are told once
            client.raw(
                encode_request(
                    ApiVersionsRequest(client_software_name="x", client_software_version="1"),
                    4,
                    7,
                    "t",
                ).join()[4:]
            )
    for frame in (METADATA, b"GET / HTTP/1.1\r\n", b"\x16\x03", b"x", b"\0\x24\0\1"):
        with pytest.raises(ProtocolError):
            client.raw(frame)


def test_versions_may_be_asked_for_again_after_an_error(client: Client) -> None:
    frame = bytearray(
        encode_request(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 7, "t"
        ).join()[4:]
    )
    frame[3] = 99
    assert isinstance(client.raw(frame), Outgoing)
    bad = client.send(
        ApiVersionsRequest(client_software_name="not a name!", client_software_version="1"), 4
    )
    assert isinstance(bad, ApiVersionsResponse)
    assert ErrorCode.of(bad.error_code) is ErrorCode.INVALID_REQUEST
    client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    client.handshake()


def test_versions_that_are_not_served_are_not_told_for_ever(client: Client) -> None:
    frame = bytearray(
        encode_request(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, 7, "t"
        ).join()[4:]
    )
    frame[3] = 99
    for _ in range(10):
        assert isinstance(client.raw(frame), Outgoing)
    with pytest.raises(ProtocolError):
        client.raw(frame)


def test_a_client_that_is_not_known_yet_is_not_held_to_a_quota(broker: AdminBroker) -> None:
    broker.controller.change_entities(
        EntityKind.USER, lambda _: {"<default>": {"request_percentage": "0.0000001"}}
    ).result()
    assert broker.services.quotas is not None
    for _ in range(3):  # those before have used more than there is
        client = Client(broker)
        client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        client.handshake()
        client.authenticate(b"\0ann\0anns")


@pytest.mark.parametrize("session_ms", [0, 5000])
def test_a_client_that_is_known_is_held_to_its_quota_whatever_it_asks(
    tmp_path: Path, session_ms: int
) -> None:
    again = {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(session_ms)}
    broker = AdminBroker(tmp_path, {**SETTINGS, **again})
    try:
        client = Client(broker)
        muted: list[float] = []
        client.info.mute = muted.append
        broker.controller.change_entities(
            EntityKind.USER, lambda _: {"ann": {"request_percentage": "0.0000001"}}
        ).result()
        client.handshake()
        client.authenticate(b"\0ann\0anns")
        assert muted == []
        versions = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        frame = encode_request(versions, 4, 7, "tester").join()[4:]
        for _ in range(2):
            client.raw(frame)
            broker.clock.settle()
        assert muted
        muted.clear()
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        client.raw(encode_request(handshake, 1, 7, "tester").join()[4:])
        assert bool(muted) is not bool(session_ms)  # only who may authenticate again does so
    finally:
        broker.close()


def test_who_is_authenticated_counts_as_half_open_no_more(broker: AdminBroker) -> None:
    told: list[str] = []
    session = broker.dispatcher.open_session(
        Peer(1, "SASL_PLAINTEXT", "10.0.0.7", 1, on_authenticated=lambda: told.append("now"))
    )

    def send(request: Request, version: int) -> None:
        session.serve(memoryview(bytearray(encode_request(request, version, 7, "t").join()[4:])))

    send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert told == []
    send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0anns"), 2)
    assert told == ["now"]
    session.closed()


def test_a_mechanism_that_breaks_down_lets_nobody_go_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(users: PlainUsers, username: str, password: str) -> bool:
        raise OverflowError

    monkeypatch.setattr(PlainUsers, "verify", break_down)
    client.handshake()
    answer = client.refused_request(SaslAuthenticateRequest(auth_bytes=b"\0ann\0anns"), 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ProtocolError):
        client.raw(METADATA)


def test_a_handshake_that_is_refused_counts_for_no_authentication(
    client: Client, broker: AdminBroker
) -> None:
    client.handshake()
    client.authenticate(b"\0ann\0anns")
    client.handshake()
    assert broker.authentication is not None
    assert broker.authentication.counts.successful == 1


@pytest.mark.parametrize("frame", [METADATA, b"\0", b"\xff" * 100])
def test_another_request_than_a_token_closes_it_after_the_delay(
    client: Client, frame: bytes
) -> None:
    client.handshake()
    assert client.refused(frame) is None
    with pytest.raises(ProtocolError):
        client.raw(METADATA)


@pytest.mark.parametrize(
    ("request_", "version", "response"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse),
        (ApiVersionsRequest(), 0, ApiVersionsResponse),
    ],
)
def test_what_belongs_before_the_tokens_is_answered_among_them_and_closes_the_connection(
    client: Client, request_: Request, version: int, response: type
) -> None:
    client.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    outgoing = client.refused(encode_request(request_, version, 7, "tester").join()[4:])
    assert outgoing is not None
    answer = decode_response(request_.API_KEY, version, outgoing.join()[4:])[1]
    assert isinstance(answer, response)
    assert getattr(answer, "error_code", None) == ErrorCode.ILLEGAL_SASL_STATE.code


def test_a_wrong_password_is_answered_late(client: Client, broker: AdminBroker) -> None:
    client.handshake()
    request = SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong")
    answer = client.refused_request(request, 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    with pytest.raises(ProtocolError):
        client.raw(METADATA)
    assert broker.authentication is not None
    assert broker.authentication.counts.failed == 1


def test_a_mechanism_that_there_is_not(client: Client) -> None:
    answer = client.refused_request(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert isinstance(answer, SaslHandshakeResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


def test_frames_are_small_until_the_client_is_authenticated(client: Client) -> None:
    frames = FrameReader(100_000_000)
    client.session.limit(frames)
    assert frames.max_frame_bytes == 135_168  # the largest message of a mechanism fits
    client.handshake()
    assert frames.max_frame_bytes == 135_168
    client.authenticate(b"\0ann\0anns")
    assert frames.max_frame_bytes == 100_000_000


def test_who_knows_the_cluster_cannot_tell_a_decoy_from_a_user(tmp_path: Path) -> None:
    first = b"n,,n=nobody,r=abc"

    def salt(name: str, secret: str) -> str:
        settings = {**SETTINGS, "delegation.token.secret.key": secret} if secret else SETTINGS
        (tmp_path / name).mkdir()
        broker = AdminBroker(tmp_path / name, settings)
        try:
            client = Client(broker)
            client.handshake("SCRAM-SHA-256")
            return client.authenticate(first).auth_bytes.decode().split(",")[1]
        finally:
            broker.close()

    salts = [salt("a", ""), salt("b", "one"), salt("c", "two")]
    assert len(set(salts)) == 3
    assert salt("d", "one") == salts[1]


def test_nothing_waits_for_a_client_that_has_gone(client: Client, broker: AdminBroker) -> None:
    client.handshake()
    served = client.raw(
        encode_request(SaslAuthenticateRequest(auth_bytes=b"x"), 2, 7, "t").join()[4:]
    )
    assert isinstance(served, Deferred)
    client.session.closed()
    broker.clock.advance(1000)
    assert not served.done


def test_another_password_counts_from_the_next_connection_on(broker: AdminBroker) -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"

    def is_let_in(password: str) -> bool:
        client = Client(broker)
        client.handshake()
        request = SaslAuthenticateRequest(auth_bytes=f"\0ann\0{password}".encode())
        frame = encode_request(request, 2, 7, "t").join()[4:]
        return isinstance(client.raw(frame), Outgoing)

    assert is_let_in("anns")
    wrong = {name: JAAS[:-1]}
    with pytest.raises(ConfigError, match="semi-colon"):
        broker.config.check(wrong, for_all_brokers=False)
    right = {name: JAAS.replace("anns", "new")}
    broker.config.check(right, for_all_brokers=False)
    broker.config.update(of_all_brokers={}, of_this_broker=right)
    assert is_let_in("new")
    assert not is_let_in("anns")


def test_a_listener_without_sasl_is_served_at_once(broker: AdminBroker) -> None:
    session = broker.connect("PLAINTEXT")
    assert not isinstance(session, SaslSession)
    assert isinstance(session.serve(memoryview(bytearray(METADATA))), Outgoing)


class TestSessionsThatEnd:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[AdminBroker]:
        broker = AdminBroker(
            tmp_path,
            {**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000"},
        )
        yield broker
        broker.close()

    @pytest.fixture
    def client(self, broker: AdminBroker) -> Client:
        client = Client(broker)
        client.handshake()
        assert client.authenticate(b"\0ann\0anns").session_lifetime_ms == 5000
        return client

    def test_a_client_authenticates_again(self, client: Client, broker: AdminBroker) -> None:
        broker.clock.advance(4000)
        client.handshake()
        assert client.session.is_authenticated
        assert client.authenticate(b"\0ann\0anns").session_lifetime_ms == 5000
        broker.clock.advance(4000)
        client.metadata()

    def test_it_may_do_so_late(self, client: Client, broker: AdminBroker) -> None:
        broker.clock.advance(40_000)
        client.handshake()
        client.authenticate(b"\0ann\0anns")
        client.metadata()

    def test_an_old_session_is_closed_at_its_next_request(
        self, client: Client, broker: AdminBroker
    ) -> None:
        broker.clock.advance(5001)
        with pytest.raises(ConnectionClosedError):
            client.raw(METADATA)
        assert broker.authentication is not None
        assert broker.authentication.counts.expired_sessions == 1

    def test_no_request_is_served_between(self, client: Client) -> None:
        client.handshake()
        assert client.refused(METADATA) is None

    def test_another_principal(self, client: Client, broker: AdminBroker) -> None:
        client.handshake()
        request = SaslAuthenticateRequest(auth_bytes=b"\0bob\0bobs")
        answer = client.refused_request(request, 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_message is not None
        assert answer.error_message.startswith("Cannot change principals")
        assert broker.authentication is not None
        assert broker.authentication.counts.failed_again == 1

    def test_another_mechanism(self, client: Client) -> None:
        client.handshake("SCRAM-SHA-256")
        token = encode_request(SaslAuthenticateRequest(auth_bytes=b"x"), 2, 7, "t").join()[4:]
        assert client.refused(token) is None


class TestTokens:
    """OAUTHBEARER with a set of keys in a file."""

    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[AdminBroker]:
        keys = tmp_path / "keys.json"
        keys.write_bytes(jwks(key("RSA", "one")))
        settings = {
            "listeners": "SASL_PLAINTEXT://:9094",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "connection.failed.authentication.delay.ms": "250",
        }
        data = tmp_path / "data"
        data.mkdir()
        broker = AdminBroker(data, settings)
        yield broker
        broker.close()

    def token(self, **changed: object) -> bytes:
        token = signed(key("RSA", "one"), **{"aud": "kafka", **changed})
        client = OAuthBearerClient(token)
        return client.evaluate(None)

    def test_a_token_and_its_end(self, client: Client, broker: AdminBroker) -> None:
        client.handshake("OAUTHBEARER")
        answer = client.authenticate(self.token())
        assert answer.session_lifetime_ms == 300_000
        assert client.info.principal == KafkaPrincipal("User", "ann")
        broker.clock.advance(300_001)
        with pytest.raises(ConnectionClosedError):
            client.raw(METADATA)

    def test_a_token_that_is_refused(self, client: Client, broker: AdminBroker) -> None:
        client.handshake("OAUTHBEARER")
        error = b'{"status":"invalid_token"}'
        assert client.authenticate(self.token(aud="another")).auth_bytes == error
        answer = client.refused_request(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert ErrorCode.of(answer.error_code) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == error.decode()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI .Kerberos., which Millstream does not"),
        ({"sasl.enabled.mechanisms": "PLAIN,X"}, "asks for X, which"),
        ({"sasl.enabled.mechanisms": ""}, "has no SASL mechanism"),
        (
            {"listener.name.sasl_plaintext.scram-sha-256.sasl.server.callback.handler.class": "x"},
            "runs no callback handlers",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "jwks.endpoint.url is missing"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x required;"},
            "the login module of PLAIN is",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x required hunter2"},
            "plain.sasl.jaas.config: ",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "x"},
            "runs no callback handlers",
        ),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, changed: dict[str, str], reason: str) -> None:
    config = DynamicConfig(BrokerConfig({**SETTINGS, **changed}))
    with pytest.raises(ConfigError, match=reason) as caught:
        ListenerAuthentication(
            config,
            entities=EntityTable(),
            cluster_id="x",
            random_bytes=bytes,
            clock=HandClock(),
            offload=HeldOffload(),
            tokens=DelegationTokens(config, EntityTable(), HandClock()),
        )
    assert "hunter2" not in str(caught.value)


def test_a_listener_s_plain_users_have_to_be_named() -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    settings = {key: text for key, text in SETTINGS.items() if key != name}
    config = DynamicConfig(BrokerConfig(settings))
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        ListenerAuthentication(
            config,
            entities=EntityTable(),
            cluster_id="x",
            random_bytes=bytes,
            clock=HandClock(),
            offload=HeldOffload(),
            tokens=DelegationTokens(config, EntityTable(), HandClock()),
        )
