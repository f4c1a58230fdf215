import pytest

from millstream.model.principal import KafkaPrincipal
from millstream.security.sasl.mechanism import InvalidExchangeError, SaslAuthenticationError
from millstream.security.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"ann": "anns", "böb": "pässword"})


@pytest.mark.parametrize(("name", "password"), [("ann", "anns"), ("böb", "pässword")])
def test_both_sides(name: str, password: str) -> None:
    client, server = PlainClient(name, password), PlainServer(USERS)
    assert server.evaluate(client.evaluate(None)) == b""
    assert client.is_complete
    assert server.authenticated is not None
    assert server.authenticated.principal == KafkaPrincipal("User", name)
    assert server.authenticated.expires_at_ms is None


@pytest.mark.parametrize(
    "message", [b"\0ann\0wrong", b"\0bob\0anns", b"\0ann\0ANNS", b"\0eve\0x", b"\0ann\0ann"]
)
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(message: bytes) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationError) as caught:
        server.evaluate(message)
    assert str(caught.value) == "Authentication failed: Invalid username or password"
    assert server.authenticated is None


@pytest.mark.parametrize(
    "message",
    [b"", b"ann", b"\0ann", b"\0ann\0", b"\0\0anns", b"\0ann\0anns\0", b"\0ann\0anns\0x", b"\xff"],
)
def test_a_malformed_message_is_for_the_log_alone(message: bytes) -> None:
    server = PlainServer(USERS)
    with pytest.raises(InvalidExchangeError):
        server.evaluate(message)
    assert server.authenticated is None


def test_the_authorization_id_is_the_user() -> None:
    assert PlainServer(USERS).evaluate(b"ann\0ann\0anns") == b""
    server = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationError, match="authorization id that is different"):
        server.evaluate("böb\0ann\0anns".encode())
    assert server.authenticated is None


def test_nothing_follows_a_success() -> None:
    server = PlainServer(USERS)
    server.evaluate(b"\0ann\0anns")
    with pytest.raises(InvalidExchangeError):
        server.evaluate(b"\0ann\0anns")


def test_a_client_answers_no_challenge_and_sends_no_nul() -> None:
    with pytest.raises(SaslAuthenticationError):
        PlainClient("ann", "anns").evaluate(b"more")
    for name, password in (("", "x"), ("x", ""), ("a\0b", "c"), ("a", "b\0c")):
        with pytest.raises(SaslAuthenticationError):
            PlainClient(name, password)
