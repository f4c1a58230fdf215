"""Requests to other brokers over a network that the test plays: order, time-outs, what a failure
tells of the request.
"""

from __future__ import annotations

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream.client.errors import ConnectionFailedError
from millstream.model.broker import BrokerId, Endpoint
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import decode_request, decode_request_header, encode_response
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.broker_channels import BrokerChannels, TransportOwner
from millstream.security.sasl.mechanism import SaslClient
from millstream.security.sasl.plain import PlainClient

HERE = Endpoint("PLAINTEXT", "a", 1)
THERE = Endpoint("PLAINTEXT", "b", 2)
PEER = BrokerId(2)


class Wire:
    """One transport, with the other side's hand on it."""

    received_size = 0

    def __init__(self, host: str, port: int, owner: TransportOwner) -> None:
        self.address = (host, port)
        self.owner = owner
        self.is_closed = False
        self.asked: list[tuple[int, int, int, Request]] = []

    def send(self, outgoing: Outgoing) -> None:
        frame = memoryview(outgoing.join())[4:]
        header = decode_request_header(frame)
        request = decode_request(header, frame)
        self.asked.append((header.key, header.version, header.correlation_id, request))

    def close(self) -> None:
        self.is_closed = True

    def answer(self, response: Response, *, correlation_id: int | None = None) -> None:
        key, version, correlation, _ = self.asked.pop(0)
        if correlation_id is not None:
            correlation = correlation_id
        answer = encode_response(key, version, correlation, response)
        self.owner.frame_received(memoryview(answer.join())[4:])

    def greet(self, *keys: tuple[int, int, int]) -> None:
        self.owner.connected()
        self.answer(
            ApiVersionsResponse(
                error_code=0,
                api_keys=[
                    ApiVersion(api_key=key, min_version=first, max_version=last)
                    for key, first, last in ((18, 0, 4), *keys)
                ],
            )
        )


class Wires:
    def __init__(self) -> None:
        self.opened: list[Wire] = []

    def open(self, host: str, port: int, owner: TransportOwner) -> Wire:
        wire = Wire(host, port, owner)
        self.opened.append(wire)
        return wire


class Site:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.network = Wires()
        self.endpoint: Endpoint | None = HERE
        self.channels = BrokerChannels(
            self.network, self.clock, client_id="test", endpoint_of=lambda _: self.endpoint
        )

    def ask(self, name: str = "g", *, lane: str = "", timeout_ms: int = 1000) -> Deferred[Response]:
        return self.channels.send(PEER, heartbeat(name), timeout_ms, lane=lane)

    @property
    def wire(self) -> Wire:
        return self.network.opened[-1]

    def open(self) -> Wire:
        self.wire.greet((ApiKey.HEARTBEAT, 0, 3))
        return self.wire


@pytest.fixture
def site() -> Site:
    return Site()


def heartbeat(group: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


def error(outcome: Deferred[Response]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        outcome.result()
    return caught.value.error


def code(outcome: Deferred[Response]) -> int:
    response = outcome.result()
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


def test_the_first_request_connects_and_agrees_on_a_version(site: Site) -> None:
    outcome = site.ask()
    assert site.wire.asked == []
    site.open()
    (asked,) = site.wire.asked
    assert (asked[0], asked[1]) == (ApiKey.HEARTBEAT, 3)
    site.wire.answer(HeartbeatResponse(error_code=27))
    assert code(outcome) == 27
    assert len(site.network.opened) == 1


def test_requests_share_a_connection_and_are_answered_in_order(site: Site) -> None:
    first = site.ask("one")
    wire = site.open()
    second = site.ask("two")
    assert len(wire.asked) == 2
    wire.answer(HeartbeatResponse(error_code=1))
    assert not second.done
    wire.answer(HeartbeatResponse(error_code=2))
    assert (code(first), code(second)) == (1, 2)


def test_an_answer_to_another_request_is_a_broken_peer(site: Site) -> None:
    site.ask()
    wire = site.open()
    with pytest.raises(ProtocolError):
        wire.answer(HeartbeatResponse(error_code=1), correlation_id=99)


def test_a_lane_has_a_connection_of_its_own(site: Site) -> None:
    site.ask(lane="fetch")
    site.ask()
    assert len(site.network.opened) == 2


def test_an_unknown_broker_is_told_at_once(site: Site) -> None:
    site.endpoint = None
    assert error(site.ask()) is ErrorCode.BROKER_NOT_AVAILABLE
    assert site.network.opened == []


def test_a_refused_connection_says_that_nothing_was_sent(site: Site) -> None:
    outcome = site.ask()
    site.wire.owner.closed("connection refused")
    assert error(outcome) is ErrorCode.BROKER_NOT_AVAILABLE
    site.ask()
    assert len(site.network.opened) == 2


def test_a_lost_connection_says_that_nobody_knows(site: Site) -> None:
    outcome = site.ask()
    site.open().owner.closed("reset")
    assert error(outcome) is ErrorCode.NETWORK_EXCEPTION


def test_no_answer_in_time_closes_the_connection(site: Site) -> None:
    outcome, other = site.ask(timeout_ms=100), site.ask("two")
    wire = site.open()
    site.clock.advance(100)
    assert error(outcome) is ErrorCode.REQUEST_TIMED_OUT
    assert error(other) is ErrorCode.NETWORK_EXCEPTION
    assert wire.is_closed


def test_no_connection_in_time_says_that_nothing_was_sent(site: Site) -> None:
    outcome = site.ask(timeout_ms=100)
    site.clock.advance(100)
    assert error(outcome) is ErrorCode.BROKER_NOT_AVAILABLE
    assert site.wire.is_closed


def test_an_api_that_the_other_side_lacks_is_told(site: Site) -> None:
    outcome = site.channels.send(PEER, MetadataRequest(topics=None), 1000)
    site.open()
    assert error(outcome) is ErrorCode.UNSUPPORTED_VERSION


def test_a_version_that_the_caller_names_needs_no_agreement(site: Site) -> None:
    site.channels.send(PEER, MetadataRequest(topics=[]), 1000, version=9)
    (asked,) = site.open().asked
    assert asked[:2] == (ApiKey.METADATA, 9)


def test_a_broker_that_moved_gets_a_new_connection(site: Site) -> None:
    outcome = site.ask()
    before = site.open()
    site.endpoint = THERE
    site.ask()
    assert error(outcome) is ErrorCode.NETWORK_EXCEPTION
    assert before.is_closed
    assert site.wire.address == ("b", 2)


def test_closing_tells_everybody_who_waits(site: Site) -> None:
    outcome = site.ask()
    site.open()
    site.channels.close()
    assert error(outcome) is ErrorCode.NETWORK_EXCEPTION
    assert site.wire.is_closed


class TestAuthentication:
    """Channels to a listener that asks who a broker is."""

    @pytest.fixture
    def site(self) -> Site:
        site = Site()
        site.channels = BrokerChannels(
            site.network,
            site.clock,
            client_id="test",
            endpoint_of=lambda _: site.endpoint,
            new_sasl=lambda: Deferred.of(PlainClient("broker", "secret")),
        )
        return site

    def greeted(self, site: Site) -> Wire:
        site.wire.greet((ApiKey.HEARTBEAT, 0, 3), (17, 0, 1), (36, 0, 2))
        return site.wire

    def authenticate(self, wire: Wire, session_ms: int = 0) -> None:
        ((key, version, _, request),) = wire.asked
        assert (key, version) == (ApiKey.SASL_HANDSHAKE, 1)
        assert isinstance(request, SaslHandshakeRequest)
        assert request.mechanism == "PLAIN"
        wire.answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))
        ((key, _, _, request),) = wire.asked
        assert isinstance(request, SaslAuthenticateRequest)
        assert bytes(request.auth_bytes) == b"\0broker\0secret"
        wire.answer(
            SaslAuthenticateResponse(
                error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=session_ms
            )
        )

    def test_requests_wait_until_this_broker_is_let_in(self, site: Site) -> None:
        outcome = site.ask("g")
        wire = self.greeted(site)
        self.authenticate(wire)
        assert [key for key, *_ in wire.asked] == [ApiKey.HEARTBEAT]
        wire.answer(HeartbeatResponse(error_code=0))
        assert code(outcome) == 0

    @pytest.mark.parametrize(
        "refusal",
        [
            SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM.code, mechanisms=["GSSAPI"]
            ),
            SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.code, mechanisms=[]),
        ],
    )
    def test_a_refused_handshake(self, site: Site, refusal: SaslHandshakeResponse) -> None:
        site.ask("g")
        wire = self.greeted(site)
        with pytest.raises(ProtocolError):
            wire.answer(refusal)

    def test_a_wrong_password(self, site: Site) -> None:
        outcome = site.ask("g")
        wire = self.greeted(site)
        wire.answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))
        with pytest.raises(ProtocolError, match="no such user") as caught:
            wire.answer(
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED.code,
                    error_message="no such user",
                    auth_bytes=b"",
                )
            )
        wire.owner.closed(str(caught.value))  # as the channel does for a ProtocolError
        assert error(outcome) is ErrorCode.BROKER_NOT_AVAILABLE

    def test_a_broker_without_sasl(self, site: Site) -> None:
        site.ask("g")
        with pytest.raises(ProtocolError, match="does not serve SaslHandshake"):
            site.wire.greet((ApiKey.HEARTBEAT, 0, 3))

    def late(self, site: Site) -> Deferred[SaslClient]:
        made: Deferred[SaslClient] = Deferred()
        site.channels = BrokerChannels(
            site.network,
            site.clock,
            client_id="test",
            endpoint_of=lambda _: site.endpoint,
            new_sasl=lambda: made,
        )
        return made

    def test_a_token_is_waited_for(self, site: Site) -> None:
        made = self.late(site)
        outcome = site.ask("g")
        wire = self.greeted(site)
        assert wire.asked == []
        made.complete(PlainClient("broker", "secret"))
        self.authenticate(wire)
        wire.answer(HeartbeatResponse(error_code=0))
        assert code(outcome) == 0

    def test_without_a_token_the_connection_is_closed(self, site: Site) -> None:
        made = self.late(site)
        outcome = site.ask("g")
        wire = self.greeted(site)
        made.fail(ConnectionFailedError("no token"))
        assert wire.is_closed
        assert error(outcome) is ErrorCode.BROKER_NOT_AVAILABLE

    def test_a_token_that_comes_too_late_goes_nowhere(self, site: Site) -> None:
        made = self.late(site)
        site.ask("g")
        wire = self.greeted(site)
        site.channels.close()
        made.complete(PlainClient("broker", "secret"))
        assert wire.asked == []

    def test_nothing_may_be_answered_before_this_broker_speaks(self, site: Site) -> None:
        self.late(site)
        site.ask("g")
        wire = self.greeted(site)
        with pytest.raises(ProtocolError, match="nothing that was asked"):
            wire.owner.frame_received(memoryview(bytes(8)))

    def test_a_session_is_renewed_between_two_requests(self, site: Site) -> None:
        first = site.ask("one")
        wire = self.greeted(site)
        self.authenticate(wire, 10_000)
        wire.answer(HeartbeatResponse(error_code=0))
        assert code(first) == 0
        site.clock.advance(8_500)
        second = site.ask("two")
        site.clock.advance(500)
        third = site.ask("three")
        assert len(wire.asked) == 1
        wire.answer(HeartbeatResponse(error_code=0))
        assert code(second) == 0
        self.authenticate(wire, 10_000)
        wire.answer(HeartbeatResponse(error_code=0))
        assert code(third) == 0
        site.clock.advance(9_000)
        self.authenticate(wire, 0)
        site.clock.advance(100_000)
        assert not wire.asked
        assert not wire.is_closed
