import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.principal import KafkaPrincipal
from millstream.security.sasl.mechanism import (
    Authenticated,
    InvalidExchangeError,
    SaslAuthenticationError,
)
from millstream.security.sasl.oauthbearer import (
    BearerToken,
    ClientResponse,
    InvalidTokenError,
    OAuthBearerClient,
    OAuthBearerServer,
    read_response,
    write_response,
)

refused: list[str] = []


def validate(token: str) -> BearerToken:
    if token != "good.token":
        raise InvalidTokenError("it has expired", scope="write" if token == "small" else "")
    return BearerToken("ann", 99)


def server() -> OAuthBearerServer:
    refused.clear()
    return OAuthBearerServer(validate, refused.append)


def test_a_token_that_is_accepted() -> None:
    one, other = OAuthBearerClient("good.token", {"logicalCluster": "lkc-1"}), server()
    message = one.evaluate(None)
    assert message == b"n,,\x01auth=Bearer good.token\x01logicalCluster=lkc-1\x01\x01"
    assert one.evaluate(other.evaluate(message)) == b""
    assert one.is_complete
    assert other.authenticated == Authenticated(KafkaPrincipal("User", "ann"), 99)
    assert other.extensions == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize(
    ("token", "error"),
    [
        ("bad", b'{"status":"invalid_token"}'),
        ("small", b'{"status":"invalid_token", "scope":"write"}'),
    ],
)
def test_a_token_that_is_refused_takes_one_round_more(token: str, error: bytes) -> None:
    one, other = OAuthBearerClient(token), server()
    challenge = other.evaluate(one.evaluate(None))
    assert challenge == error
    assert one.evaluate(challenge) == b"\x01"
    assert refused == ["it has expired"]
    with pytest.raises(SaslAuthenticationError) as caught:
        other.evaluate(b"\x01")
    assert not isinstance(caught.value, InvalidExchangeError)
    assert str(caught.value).encode() == error
    for message in (b"\x01", OAuthBearerClient("good.token").evaluate(None)):
        with pytest.raises(InvalidExchangeError):
            other.evaluate(message)
    assert other.authenticated is None
    with pytest.raises(SaslAuthenticationError, match="refused the token"):
        one.evaluate(b"")
    assert not one.is_complete


def test_a_good_token_after_a_bad_one_is_not_heard() -> None:
    other = server()
    other.evaluate(OAuthBearerClient("bad").evaluate(None))
    with pytest.raises(SaslAuthenticationError):
        other.evaluate(OAuthBearerClient("good.token").evaluate(None))
    assert other.authenticated is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,auth=Bearer good.token",
        b"n,,\x01auth=Bearer good.token\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good token\x01\x01",
        b"n,\x01auth=Bearer good.token\x01\x01",
        b"p=x,,\x01auth=Bearer good.token\x01\x01",
        b"n,b=ann,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01x\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01x=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01\x01more",
        b"\xff",
        b"n,,\x01auth=Bearer " + b"x" * (1 << 20) + b"\x01\x01",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    other = server()
    with pytest.raises(InvalidExchangeError) as caught:
        other.evaluate(message)
    assert "good" not in str(caught.value)
    assert other.authenticated is None


def test_the_authorization_id_is_the_principal() -> None:
    assert server().evaluate(b"n,a=ann,\x01auth=bearer  good.token\x01\x01") == b""
    other = server()
    with pytest.raises(SaslAuthenticationError, match="authorization id"):
        other.evaluate(b"n,a=bob,\x01auth=Bearer good.token\x01\x01")
    assert other.authenticated is None


@pytest.mark.parametrize(
    ("token", "extensions"),
    [
        ("", {}),
        ("a b", {}),
        ("a\x01b", {}),
        ("a", {"auth": "x"}),
        ("a", {"1": "x"}),
        ("a", {"x": ""}),
    ],
)
def test_a_client_sends_nothing_malformed(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(SaslAuthenticationError):
        OAuthBearerClient(token, extensions)


def test_a_broker_that_speaks_out_of_turn() -> None:
    one = OAuthBearerClient("good.token")
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(b"")
    one.evaluate(None)
    one.evaluate(b"")
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(b"")


@pytest.mark.slow
@given(
    st.from_regex(r"[-_.a-zA-Z0-9]+", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\x01")),
    st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda key: key != "auth"),
        st.from_regex(r"[\x21-\x7e \t]+", fullmatch=True),
    ),
)
def test_round_trip(token: str, name: str, extensions: dict[str, str]) -> None:
    response = ClientResponse(token, name, extensions)
    assert read_response(write_response(response)) == response


def test_the_text_of_a_response_has_no_secrets() -> None:
    assert repr(ClientResponse("secret", "ann", {"a": "secret"})) == (
        "ClientResponse(authorization_id='ann')"
    )


@given(st.binary(max_size=300))
def test_garbage(message: bytes) -> None:
    other = server()
    with pytest.raises(InvalidExchangeError):
        other.evaluate(message)
