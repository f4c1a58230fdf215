"""SASL on a connection: each mechanism, refusals, sessions that end."""

from __future__ import annotations

import pytest
from tests.client_twin import TwinBroker, TwinCluster, TwinLoop
from tests.client_twin.authentication import TwinAuthentication
from tests.client_twin.loop import Connection

from millstream.client.core.connection_attempt import State
from millstream.client.core.network import Network, Purpose
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionFailedError,
    TlsError,
    is_retriable,
)
from millstream.client.security import open_security
from millstream.client.settings import Address
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

ANN = {"sasl.username": "ann", "sasl.password": "secret"}


class World:
    def __init__(self, mechanism: str = "PLAIN", **more: object) -> None:
        self.loop = TwinLoop()
        self.cluster = TwinCluster(self.loop, (1,))
        self.sasl = TwinAuthentication(self.cluster)
        given = {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            **({} if mechanism == "OAUTHBEARER" else ANN),
        }
        settings = read_settings(ClientSettings, {**given, **more})
        self.loop.security = open_security(settings)
        self.network = Network(self.loop, settings)

    def ask(self) -> Deferred[Response]:
        return self.network.send(-1, MetadataRequest(topics=[]))

    def refusal(self) -> ClientError:
        with pytest.raises(ClientError) as caught:
            self.loop.run(self.ask())
        return caught.value

    @property
    def asked(self) -> list[str]:
        return [
            type(each).__name__.removesuffix("Request") for each in self.cluster.brokers[1].requests
        ]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_connection_is_authenticated_before_the_first_request(mechanism: str) -> None:
    world = World(mechanism)
    world.loop.run(world.ask())
    messages = 1 if mechanism == "PLAIN" else 2
    expected = ["ApiVersions", "SaslHandshake", *["SaslAuthenticate"] * messages, "Metadata"]
    assert world.asked == expected
    assert world.sasl.exchanges == 1


def test_a_bearer_token_is_had_off_the_loop_and_sent() -> None:
    world = World("OAUTHBEARER", **{"sasl.oauth.token": lambda: "token-of-ann"})
    world.loop.run(world.ask())
    assert world.sasl.exchanges == 1
    assert world.asked[-2:] == ["SaslAuthenticate", "Metadata"]


def test_a_token_that_is_refused_is_confirmed_and_reported() -> None:
    world = World("OAUTHBEARER", **{"sasl.oauth.token": lambda: "token-of-bob"})
    error = world.refusal()
    assert isinstance(error, AuthenticationError)
    assert "OAUTHBEARER" in str(error)
    assert "invalid_token" in str(error)
    assert "token-of-bob" not in str(error)
    assert world.asked[-2:] == ["SaslAuthenticate", "SaslAuthenticate"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_final_and_is_not_shown(mechanism: str) -> None:
    world = World(mechanism, **{"sasl.password": "hush-hush"})
    error = world.refusal()
    assert isinstance(error, AuthenticationError)
    assert not is_retriable(error)
    assert f"could not authenticate at the broker at {world.cluster.bootstrap}" in str(error)
    assert "hush" not in f"{error}{error!r}{world.network.settings!r}{world.loop.security!r}"
    assert not world.loop.network.connections


def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    world = World()
    del world.sasl.enabled["PLAIN"]
    error = world.refusal()
    assert isinstance(error, AuthenticationError)
    assert "has not enabled sasl.mechanism PLAIN, but OAUTHBEARER, SCRAM-SHA-256" in str(error)


def test_a_listener_without_sasl_is_told_apart() -> None:
    world = World()
    refusal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code, mechanisms=[])
    world.cluster.handlers[SaslHandshakeRequest] = lambda *_: refusal
    assert "expects no SASL on this listener" in str(world.refusal())


@pytest.mark.parametrize("versions", [None, (0, 0)])
def test_a_broker_without_the_requests_of_sasl_is_told_apart(
    versions: tuple[int, int] | None,
) -> None:
    world = World()
    del world.cluster.brokers[1].versions[int(ApiKey.SASL_HANDSHAKE)]
    if versions is not None:
        world.cluster.brokers[1].versions[int(ApiKey.SASL_HANDSHAKE)] = versions
    error = world.refusal()
    assert isinstance(error, AuthenticationError)
    assert ("does not serve SaslHandshake" in str(error)) == (versions is None)
    assert ("before 1.0" in str(error)) == (versions is not None)


def test_a_broker_that_proves_nothing_is_not_believed() -> None:
    world = World("SCRAM-SHA-256")
    forged = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"v=Zm9yZ2Vk")
    authenticate = world.cluster.handlers[SaslAuthenticateRequest]

    def forge(broker: TwinBroker, request: Request) -> Response | None:
        answer = authenticate(broker, request)
        assert isinstance(answer, SaslAuthenticateResponse)
        return forged if answer.auth_bytes.startswith(b"v=") else answer

    world.cluster.handlers[SaslAuthenticateRequest] = forge
    error = world.refusal()
    assert isinstance(error, AuthenticationError)
    assert "Invalid server signature" in str(error)


def test_a_broker_that_ends_the_connection_meanwhile_is_tried_again() -> None:
    world = World()
    cut: list[Request] = []

    def before(broker: TwinBroker, connection: Connection, request: Request) -> bool:
        if isinstance(request, SaslAuthenticateRequest) and not cut:
            cut.append(request)
            connection.cut(ConnectionResetError(104, "connection reset"))
            return False
        return True

    world.cluster.before = before
    assert isinstance(world.refusal(), ConnectionFailedError)
    world.loop.run(world.ask())


def test_a_setup_that_takes_too_long_times_out() -> None:
    world = World(socket_connection_setup_timeout_ms=1000)
    world.cluster.after = lambda broker, connection, request: (
        None if isinstance(request, SaslAuthenticateRequest) else 0
    )
    assert is_retriable(world.refusal())
    assert world.loop.now_ms() < 5000


def test_a_listener_with_tls_is_told_apart_by_a_client_without() -> None:
    class Alert:
        def accepts(self) -> bool:
            return True

        def opened(self, connection: Connection) -> None:
            pass

        def received(self, connection: Connection, data: bytes) -> None:
            connection.answer(bytes.fromhex("15030300020250"))
            loop.call_at(loop.now_ms() + 10, connection.cut)

    loop = TwinLoop()
    loop.network.peers[Address("tls", 9093)] = Alert()
    network = Network(loop, read_settings(ClientSettings, {"bootstrap.servers": "tls:9093"}))
    with pytest.raises(TlsError, match=r"speaks TLS only: security\.protocol is SSL or SASL_SSL"):
        loop.run(network.send(-1, MetadataRequest(topics=[])))


@pytest.mark.parametrize(
    ("ended_by", "words"),
    [(ApiVersionsRequest, "may speak TLS only"), (MetadataRequest, "may want SASL")],
)
def test_a_broker_that_ends_the_connection_at_once_may_want_more(
    ended_by: type[Request], words: str
) -> None:
    loop = TwinLoop()
    cluster = TwinCluster(loop, (1,))

    def before(broker: TwinBroker, connection: Connection, request: Request) -> bool:
        if isinstance(request, ended_by):
            connection.cut()
            return False
        return True

    cluster.before = before
    network = Network(loop, read_settings(ClientSettings, {"bootstrap.servers": cluster.bootstrap}))
    with pytest.raises(ConnectionFailedError, match=words):
        loop.run(network.send(-1, MetadataRequest(topics=[])))


# --- sessions that end (KIP-368) -----------------------------------------------------------------


def test_a_session_is_renewed_before_it_ends_and_nothing_fails() -> None:
    world = World()
    world.sasl.session_lifetime_ms = 10_000
    answers: list[Deferred[Response]] = []
    for _ in range(300):
        answers.append(world.ask())
        world.loop.advance(100)
    assert all(isinstance(each.result(), Response) for each in answers)
    assert 4 <= world.sasl.exchanges <= 5
    assert world.asked.count("ApiVersions") == 1


def test_requests_that_are_in_flight_are_answered_first_and_new_ones_wait() -> None:
    world = World()
    world.sasl.session_lifetime_ms = 10_000
    groups = ListGroupsResponse(error_code=0, groups=[])
    world.cluster.handlers[ListGroupsRequest] = lambda *_: groups
    world.cluster.after = lambda broker, connection, request: (
        2_000.0 if isinstance(request, ListGroupsRequest) else 0.0
    )
    world.loop.run(world.ask())
    world.loop.advance(8_000)
    order: list[str] = []
    slow = world.network.send(-1, ListGroupsRequest())
    slow.on_done(lambda _: order.append("slow"))
    world.loop.advance(1_600)  # the renewal has begun by now
    late = world.ask()
    late.on_done(lambda _: order.append("late"))
    assert world.network._connections[-1, Purpose.DATA].state is State.AUTHENTICATING
    world.loop.run(late)
    slow.result()
    assert order == ["slow", "late"]
    assert world.sasl.exchanges == 2


def test_an_unused_connection_is_renewed_when_it_is_used_again() -> None:
    world = World(connections_max_idle_ms=60_000)
    world.sasl.session_lifetime_ms = 10_000
    world.loop.run(world.ask())
    world.loop.advance(9_900)  # used once after the first authentication: renewed once
    assert world.sasl.exchanges == 2
    world.loop.advance(40_000)
    assert world.sasl.exchanges == 2
    assert world.network._connections[-1, Purpose.DATA].state is State.STALE
    world.loop.run(world.ask())
    assert world.sasl.exchanges == 3
    assert world.asked[-3:] == ["SaslHandshake", "SaslAuthenticate", "Metadata"]


def test_an_unused_connection_is_still_closed_when_it_is_idle() -> None:
    world = World(connections_max_idle_ms=15_000)
    world.sasl.session_lifetime_ms = 10_000
    world.loop.run(world.network.ready(-1))
    world.loop.advance(20_000)
    assert not world.loop.network.connections


def test_a_renewal_that_is_refused_fails_what_waits() -> None:
    world = World()
    world.sasl.session_lifetime_ms = 10_000
    world.loop.run(world.ask())
    world.sasl.password = "changed"
    world.loop.advance(9_900)
    assert isinstance(world.refusal(), AuthenticationError)


def test_while_no_new_token_is_to_be_had_the_session_lasts_to_its_end() -> None:
    calls: list[bool] = []

    def token() -> str:
        calls.append(True)
        if 1 < len(calls) < 4:
            raise ConnectionFailedError("nobody there")
        return "token-of-ann"

    world = World("OAUTHBEARER", **{"sasl.oauth.token": token})
    world.sasl.session_lifetime_ms = 60_000
    for _ in range(70):
        world.loop.run(world.ask())
        world.loop.advance(1_000)
    assert len(calls) == 4
    assert world.sasl.exchanges == 2
    assert world.asked.count("ApiVersions") == 1


def test_a_lifetime_shorter_than_a_second_is_not_renewed_more_often() -> None:
    world = World()
    world.sasl.session_lifetime_ms = 100
    for _ in range(60):
        world.loop.run(world.ask())
        world.loop.advance(100)
    assert world.sasl.exchanges <= 7


# --- a source of tokens that does not return ------------------------------------------------------


def hang(world: World) -> None:
    """From now on nothing that may block returns."""
    world.loop.run_blocking = lambda work: Deferred()  # type: ignore[method-assign, assignment]


def test_a_token_that_never_comes_ends_the_first_attempt_and_is_named() -> None:
    world = World("OAUTHBEARER", **{"sasl.oauth.token": lambda: "token-of-ann"})
    hang(world)
    error = world.refusal()
    assert is_retriable(error)
    assert "still waiting for a token (sasl.oauth.token)" in str(error)
    assert world.loop.now_ms() < 20_000


def test_a_token_that_never_comes_holds_up_no_request_while_the_session_lasts() -> None:
    world = World("OAUTHBEARER", **{"sasl.oauth.token": lambda: "token-of-ann"})
    world.sasl.session_lifetime_ms = 60_000
    world.loop.run(world.ask())
    began = world.loop.now_ms()
    blocking = world.loop.run_blocking
    hang(world)
    errors: list[ClientError] = []
    while world.loop.now_ms() < began + 63_000:
        asked_at = world.loop.now_ms()
        try:
            world.loop.run(world.ask())
        except ClientError as error:
            errors.append(error)
            break
        assert world.loop.now_ms() - asked_at < 100, "an answer takes what it always takes"
        world.loop.advance(500)
    assert errors, "a session that has ended is not used"
    assert world.loop.now_ms() > began + 59_000
    assert "a token (sasl.oauth.token)" in str(errors[0])
    world.loop.run_blocking = blocking  # type: ignore[method-assign]
    world.loop.run(world.ask())


def test_a_token_that_comes_late_renews_the_session() -> None:
    world = World("OAUTHBEARER", **{"sasl.oauth.token": lambda: "token-of-ann"})
    world.sasl.session_lifetime_ms = 60_000
    world.loop.run(world.ask())
    world.loop.network.latency_ms = lambda: 1.0
    blocking = world.loop.run_blocking
    hang(world)
    world.loop.run(world.ask())
    world.loop.advance(57_500)
    world.loop.run_blocking = blocking  # type: ignore[method-assign]
    for _ in range(200):
        world.loop.run(world.ask())
        world.loop.advance(500)
    assert world.sasl.exchanges >= 2
