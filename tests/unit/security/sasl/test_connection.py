from __future__ import annotations

import pytest

from millstream.model.errors import ConnectionClosedError, ErrorCode, KafkaError
from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.protocol.api import ApiKey
from millstream.security.sasl.connection import Challenge, ConnectionAuthentication, Now, Step
from millstream.security.sasl.mechanism import SaslServer
from millstream.security.sasl.oauthbearer import BearerToken, OAuthBearerServer
from millstream.security.sasl.plain import PlainServer, PlainUsers

USERS = PlainUsers({"ann": "anns", "bob": "bobs"})
T0 = Now(1_000_000, 50.0)


def later(milliseconds: float) -> Now:
    return Now(T0.wall_ms + int(milliseconds), T0.monotonic_ms + milliseconds)


class Mechanisms:
    """PLAIN, and tokens that are ``name`` and expire five minutes after T0."""

    names = ("PLAIN", "OAUTHBEARER")

    def __init__(self, session_ms: int = 0) -> None:
        self.session_ms = session_ms

    def new_server(self, mechanism: str) -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(USERS)
        return OAuthBearerServer(
            lambda token: BearerToken(token, T0.wall_ms + 300_000), lambda _: None
        )

    def max_session_ms(self, mechanism: str) -> int:
        return self.session_ms


def complete(session_ms: int = 0) -> ConnectionAuthentication:
    one = ConnectionAuthentication(Mechanisms(session_ms))
    one.handshake("PLAIN", version=1, now=T0)
    one.authenticate(b"\0ann\0anns", T0)
    return one


def admitted(one: ConnectionAuthentication) -> set[ApiKey]:
    return {key for key in ApiKey if one.admits(key)}


def test_each_step_admits_what_belongs_to_it() -> None:
    one = ConnectionAuthentication(Mechanisms())
    assert admitted(one) == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    one.versions_told()
    assert admitted(one) == {ApiKey.SASL_HANDSHAKE}
    one.handshake("PLAIN", version=1, now=T0)
    assert admitted(one) == {ApiKey.SASL_AUTHENTICATE}
    assert not one.takes_raw_tokens
    assert one.principal == ANONYMOUS
    assert one.authenticate(b"\0ann\0anns", T0) == Challenge(b"", 0)
    assert one.step is Step.COMPLETE
    assert one.principal == KafkaPrincipal("User", "ann")
    one.versions_told()
    assert one.step is Step.COMPLETE


def test_a_handshake_of_version_0_is_followed_by_raw_tokens() -> None:
    one = ConnectionAuthentication(Mechanisms())
    one.handshake("PLAIN", version=0, now=T0)
    assert one.takes_raw_tokens
    one.authenticate(b"\0ann\0anns", T0)
    assert not one.takes_raw_tokens


def test_a_mechanism_that_there_is_not_ends_it() -> None:
    one = ConnectionAuthentication(Mechanisms())
    with pytest.raises(KafkaError) as caught:
        one.handshake("GSSAPI", version=1, now=T0)
    assert caught.value.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert one.step is Step.FAILED
    assert admitted(one) == set()


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (
            b"nonsense",
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism PLAIN",
        ),
    ],
)
def test_what_a_client_is_told_of_a_failure(token: bytes, told: str) -> None:
    one = ConnectionAuthentication(Mechanisms())
    one.handshake("PLAIN", version=1, now=T0)
    with pytest.raises(KafkaError) as caught:
        one.authenticate(token, T0)
    assert caught.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert caught.value.message == told
    assert one.step is Step.FAILED
    assert one.principal == ANONYMOUS


def test_without_an_end_nobody_authenticates_again() -> None:
    one = complete()
    with pytest.raises(KafkaError) as caught:
        one.handshake("PLAIN", version=1, now=later(5000))
    assert caught.value.error is ErrorCode.ILLEGAL_SASL_STATE
    assert one.step is Step.COMPLETE
    assert not one.has_expired(1e12)


@pytest.mark.parametrize(
    ("session_ms", "mechanism", "token", "told"),
    [
        (1000, "PLAIN", b"\0ann\0anns", 1000),
        (0, "OAUTHBEARER", b"n,,\x01auth=Bearer ann\x01\x01", 300_000),
        (1000, "OAUTHBEARER", b"n,,\x01auth=Bearer ann\x01\x01", 1000),
        (400_000, "OAUTHBEARER", b"n,,\x01auth=Bearer ann\x01\x01", 300_000),
    ],
)
def test_a_session_ends_with_the_credential_or_the_setting(
    session_ms: int, mechanism: str, token: bytes, told: int
) -> None:
    one = ConnectionAuthentication(Mechanisms(session_ms))
    one.handshake(mechanism, version=1, now=T0)
    assert one.authenticate(token, T0).session_ms == told
    assert not one.has_expired(later(told).monotonic_ms)
    assert one.has_expired(later(told + 1).monotonic_ms)


def test_a_client_authenticates_again() -> None:
    one = complete(10_000)
    one.handshake("PLAIN", version=1, now=later(9000))
    assert one.is_again
    assert admitted(one) == {ApiKey.SASL_AUTHENTICATE}
    assert one.authenticate(b"\0ann\0anns", later(9000)).session_ms == 10_000
    assert not one.is_again
    assert not one.has_expired(later(19_000).monotonic_ms)
    with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):  # not twice within a second
        one.handshake("PLAIN", version=1, now=later(9500))
    assert one.step is Step.COMPLETE
    one.handshake("PLAIN", version=1, now=later(10_000))


def test_a_client_authenticates_again_once_in_a_second() -> None:
    one = complete(10_000)
    one.handshake("PLAIN", version=1, now=later(0))  # the first time may be at once
    one.authenticate(b"\0ann\0anns", later(0))
    for early in (0, 1, 999, 999.9):
        with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):
            one.handshake("PLAIN", version=1, now=later(early))
        assert (one.step, one.principal.name, one.is_again) == (Step.COMPLETE, "ann", False)
    for at in (1000, 2000):  # what was refused does not put it off; each time counts anew
        one.handshake("PLAIN", version=1, now=later(at))
        one.authenticate(b"\0ann\0anns", later(at))
        with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):
            one.handshake("PLAIN", version=1, now=later(at + 999))


def test_a_session_without_an_end_is_not_begun_again() -> None:
    one = complete()
    for at in (0, 1, 5000):
        with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):
            one.handshake("PLAIN", version=1, now=later(at))
        assert one.step is Step.COMPLETE


def test_the_name_that_was_tried_is_known_afterwards() -> None:
    one = ConnectionAuthentication(Mechanisms())
    assert one.identifier == ""
    one.handshake("PLAIN", version=1, now=T0)
    with pytest.raises(KafkaError):
        one.authenticate(b"\0eve\0wrong", T0)
    assert (one.identifier, one.principal) == ("eve", ANONYMOUS)


def test_another_principal_is_refused() -> None:
    one = complete(10_000)
    one.handshake("PLAIN", version=1, now=later(9000))
    with pytest.raises(KafkaError) as caught:
        one.authenticate(b"\0bob\0bobs", later(9000))
    assert caught.value.message == (
        "Cannot change principals during re-authentication from User.ann: User.bob"
    )
    assert one.step is Step.FAILED
    assert one.principal == ANONYMOUS


def test_another_mechanism_is_refused_without_an_answer() -> None:
    one = complete(10_000)
    one.handshake("OAUTHBEARER", version=1, now=later(9000))
    with pytest.raises(ConnectionClosedError):
        one.authenticate(b"n,,\x01auth=Bearer ann\x01\x01", later(9000))
    assert one.step is Step.FAILED


def test_a_wrong_password_the_second_time() -> None:
    one = complete(10_000)
    one.handshake("PLAIN", version=1, now=later(9000))
    with pytest.raises(KafkaError) as caught:
        one.authenticate(b"x", later(9000))
    assert caught.value.message is not None
    assert "failed during re-authentication due to" in caught.value.message
