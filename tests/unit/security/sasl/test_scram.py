import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.principal import KafkaPrincipal
from millstream.security.sasl.mechanism import (
    Authenticated,
    InvalidExchangeError,
    SaslAuthenticationError,
)
from millstream.security.sasl.scram import ScramClient, ScramServer, TokenCredential
from millstream.security.sasl.scram_credential import (
    CredentialShape,
    ScramCredential,
    ScramDecoys,
    ScramMechanism,
    format_credential,
    make_credential,
    parse_credential,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
SHA_512 = ScramMechanism.SCRAM_SHA_512

# RFC 7677, section 3
NONCE, MORE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = {each: make_credential(each, "pencil", salt=SALT) for each in ScramMechanism}
TRANSCRIPT = [
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
]


def server(
    mechanism: ScramMechanism = SHA_256, users: dict[str, ScramCredential] | None = None
) -> ScramServer:
    found = {"user": PENCIL[mechanism]} if users is None else users
    return ScramServer(mechanism, find=found.get, decoys=ScramDecoys(b"decoys"), nonce=MORE)


def client(
    mechanism: ScramMechanism = SHA_256, username: str = "user", password: str = "pencil"
) -> ScramClient:
    return ScramClient(mechanism, username=username, password=password, nonce=NONCE)


def exchange(one: ScramClient, other: ScramServer) -> list[bytes]:
    said = [one.evaluate(None)]
    while not one.is_complete:
        said.append(other.evaluate(said[-1]))
        said.append(one.evaluate(said[-1]))
    assert said.pop() == b""
    return said


def test_the_exchange_of_rfc_7677() -> None:
    one, other = client(), server()
    assert exchange(one, other) == TRANSCRIPT
    assert other.authenticated == Authenticated(KafkaPrincipal("User", "user"))


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("name", ["user", "a=b,c", "=2C", "jürgen", " "])
def test_names_with_any_letters(mechanism: ScramMechanism, name: str) -> None:
    other = server(mechanism, {name: make_credential(mechanism, "p,=ä", salt=b"salt")})
    exchange(client(mechanism, name, "p,=ä"), other)
    assert other.authenticated is not None
    assert other.authenticated.principal.name == name


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("name", ["user", "nobody"])
def test_an_unknown_user_and_a_wrong_password_look_the_same(
    mechanism: ScramMechanism, name: str
) -> None:
    for _ in range(2):
        one, other = client(mechanism, name, "pen"), server(mechanism)
        first = other.evaluate(one.evaluate(None))
        salt = first.split(b",")[1]
        assert len(base64.b64decode(salt[2:])) == len(SALT)
        assert first.endswith(b",i=4096")
        assert salt == server(mechanism).evaluate(one_first(name)).split(b",")[1]
        with pytest.raises(InvalidExchangeError, match="Invalid client credentials"):
            other.evaluate(one.evaluate(first))
        assert other.authenticated is None


def one_first(name: str) -> bytes:
    return f"n,,n={name},r={NONCE}".encode()


def test_a_decoy_has_no_password_and_differs_by_user_and_by_secret() -> None:
    decoys = ScramDecoys(b"1")
    assert decoys.credential(SHA_256, "a") == decoys.credential(SHA_256, "a")
    others = [
        decoys.credential(SHA_256, "b"),
        decoys.credential(SHA_512, "a"),
        ScramDecoys(b"2").credential(SHA_256, "a"),
    ]
    assert all(other.salt != decoys.credential(SHA_256, "a").salt for other in others)


class KnownDecoys(ScramDecoys):
    """Decoys of which somebody has found out the password."""

    def credential(self, mechanism: ScramMechanism, username: str) -> ScramCredential:
        return PENCIL[mechanism]


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("iterations", [0, 4095])
def test_a_decoy_lets_nobody_in_even_with_its_password(by_token: bool, iterations: int) -> None:
    """Neither who is not there, nor whose own credential is too weak."""
    weak = make_credential(SHA_256, "pencil", salt=SALT, iterations=4095)
    token = TokenCredential(KafkaPrincipal("User", "ann"), 1234, weak)
    other = ScramServer(
        SHA_256,
        find=({"user": weak} if iterations else {}).get,
        find_token=({"user": token} if iterations else {}).get,
        decoys=KnownDecoys(b""),
        nonce=MORE,
    )
    one = ScramClient(SHA_256, username="user", password="pencil", nonce=NONCE, by_token=by_token)
    final = one.evaluate(other.evaluate(one.evaluate(None)))
    with pytest.raises(InvalidExchangeError, match="Invalid client credentials"):
        other.evaluate(final)
    assert other.authenticated is None


def test_a_decoy_looks_like_the_credentials_that_there_are() -> None:
    decoys = ScramDecoys(b"1", lambda _: CredentialShape(salt_size=100, iterations=8192))
    found = decoys.credential(SHA_256, "a")
    assert (len(found.salt), found.iterations) == (100, 8192)
    assert len({found.salt[at : at + 4] for at in range(97)}) == 97  # nothing comes twice


def test_a_stored_credential_of_too_few_iterations_is_none() -> None:
    weak = make_credential(SHA_256, "pencil", salt=SALT, iterations=4095)
    one, other = client(), server(users={"user": weak})
    final = one.evaluate(other.evaluate(one.evaluate(None)))
    with pytest.raises(InvalidExchangeError):
        other.evaluate(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=,r=abc",
        b"n,,r=abc,n=user",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=abc,m=ext",
        b"n,,n=us=er,r=abc",
        b"n,user,n=user,r=abc",
        b"n,,n=user,r=a b",
        b"n,,n=us\0er,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=" + b"x" * 20_000,
    ],
)
def test_a_malformed_first_message_ends_the_exchange(first: bytes) -> None:
    other = server()
    with pytest.raises(InvalidExchangeError):
        other.evaluate(first)
    with pytest.raises(InvalidExchangeError):
        other.evaluate(TRANSCRIPT[0])


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),  # y,,
        (b"c=biws", b"c=biw="),
        (b"c=biws,", b""),
        (b"r=rOpr", b"r=sOpr"),
        (b"k0,p=", b"k1,p="),
        (b"k0,p=", b"k0x,p="),
        (b"k0,p=", b",p="),
        (b"p=dH", b"p=eH"),
        (b"p=dH", b"p="),
        (b"=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"="),
        (b",p=", b",m=1,p="),
        (b",p=", b",x=1,p="),
        (b",p=", b",q="),
    ],
)
def test_a_changed_final_message_authenticates_nobody(change: tuple[bytes, bytes]) -> None:
    other = server()
    other.evaluate(TRANSCRIPT[0])
    assert change[0] in TRANSCRIPT[2]
    with pytest.raises(InvalidExchangeError):
        other.evaluate(TRANSCRIPT[2].replace(*change))
    assert other.authenticated is None
    with pytest.raises(InvalidExchangeError):  # nor does the right one afterwards
        other.evaluate(TRANSCRIPT[2])
    assert other.authenticated is None


def test_a_replayed_final_message_fails_with_another_nonce() -> None:
    other = ScramServer(
        SHA_256, find={"user": PENCIL[SHA_256]}.get, decoys=ScramDecoys(b""), nonce="another"
    )
    other.evaluate(TRANSCRIPT[0])
    with pytest.raises(InvalidExchangeError):
        other.evaluate(TRANSCRIPT[2])


def test_a_client_that_could_bind_the_channel_is_served() -> None:
    other = server()
    challenge = other.evaluate(b"y,,n=user,r=" + NONCE.encode())
    final = client_of_header("y,,", challenge)
    assert other.evaluate(final).startswith(b"v=")


def client_of_header(header: str, challenge: bytes) -> bytes:
    one = client()
    one._first = type(one._first)(header, one._first.bare, "user", NONCE)
    one.evaluate(None)
    return one.evaluate(challenge)


def test_the_authorization_id_is_the_user() -> None:
    right = server()
    challenge = right.evaluate(f"n,a=user,n=user,r={NONCE}".encode())
    right.evaluate(client_of_header("n,a=user,", challenge))
    assert right.authenticated is not None
    for name in ("user", "nobody"):
        other = server()
        with pytest.raises(SaslAuthenticationError, match="authorization id"):
            other.evaluate(f"n,a=other,n={name},r={NONCE}".encode())
        assert other.authenticated is None


def test_a_token_stands_for_its_owner() -> None:
    token = TokenCredential(KafkaPrincipal("User", "ann"), 1234, PENCIL[SHA_256])
    other = ScramServer(
        SHA_256,
        find={"id": PENCIL[SHA_256]}.get,
        find_token={"id": token}.get,
        decoys=ScramDecoys(b""),
        nonce=MORE,
    )
    one = ScramClient(SHA_256, username="id", password="pencil", nonce=NONCE, by_token=True)
    exchange(one, other)
    assert other.authenticated == Authenticated(KafkaPrincipal("User", "ann"), 1234)
    assert other.authenticated.principal.token_authenticated


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (f"n,,n=user,r={NONCE}", "user"),
        (f"n,,n=nobody,r={NONCE}", "nobody"),
        (f"n,,n=a=2Cb=3Dc,r={NONCE}", "a,b=c"),
        (f"n,,n=id,r={NONCE},tokenauth=true", "id"),
        (f"n,a=other,n=user,r={NONCE}", "user"),
        (f"n,,m=ext,n=user,r={NONCE}", ""),
    ],
)
def test_the_claimed_name_is_known_whatever_comes_of_it(first: str, name: str) -> None:
    other = server()
    assert other.claimed_name == ""
    try:
        other.evaluate(first.encode())
    except SaslAuthenticationError:
        with pytest.raises(SaslAuthenticationError):
            other.evaluate(TRANSCRIPT[0])
    else:
        with pytest.raises(SaslAuthenticationError):
            other.evaluate(b"c=biws,r=another,p=AA==")
    assert other.claimed_name == name
    assert other.authenticated is None


def test_a_user_is_no_token() -> None:
    other = server()
    one = ScramClient(SHA_256, username="user", password="pencil", nonce=NONCE, by_token=True)
    final = one.evaluate(other.evaluate(one.evaluate(None)))
    with pytest.raises(InvalidExchangeError):
        other.evaluate(final)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        TRANSCRIPT[1].replace(b"r=rOpr", b"r=sOpr"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        TRANSCRIPT[1].replace(b"i=4096", b"i=4095"),
        TRANSCRIPT[1].replace(b"i=4096", b"i=2000000"),
        TRANSCRIPT[1].replace(b"i=4096", b"i=" + b"9" * 100),
        TRANSCRIPT[1].replace(b"i=4096", b"i=-1"),
        TRANSCRIPT[1].replace(b"s=W2", b"s=W"),
        TRANSCRIPT[1].replace(b"s=W", b"x=W"),
        b"m=1," + TRANSCRIPT[1],
        TRANSCRIPT[3],
        b"e=other-error",
    ],
)
def test_a_client_refuses_a_wrong_first_answer(challenge: bytes) -> None:
    one = client()
    one.evaluate(None)
    with pytest.raises(SaslAuthenticationError) as caught:
        one.evaluate(challenge)
    assert "pencil" not in str(caught.value)
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(TRANSCRIPT[1])


def test_a_client_begins_once() -> None:
    one, other = client(), server()
    first = one.evaluate(None)
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(None)
    one.evaluate(other.evaluate(first))
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(None)


@pytest.mark.parametrize(
    "challenge", [b"", b"v=", TRANSCRIPT[3].replace(b"v=6", b"v=7"), b"e=invalid-proof", b"v=%"]
)
def test_a_client_believes_no_broker_without_proof(challenge: bytes) -> None:
    one = client()
    one.evaluate(None)
    one.evaluate(TRANSCRIPT[1])
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(challenge)
    assert not one.is_complete
    with pytest.raises(SaslAuthenticationError):
        one.evaluate(TRANSCRIPT[3])
    assert not one.is_complete


def test_credentials_as_kafka_writes_them() -> None:
    text = (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert format_credential(PENCIL[SHA_256]) == text
    assert parse_credential(text) == PENCIL[SHA_256]
    assert "WG5d" not in repr(PENCIL[SHA_256])
    for wrong in ("", "salt=", text.replace("=4096", "=x"), text.replace("salt=W", "salt=%")):
        with pytest.raises(ValueError, match="not a SCRAM credential"):
            parse_credential(wrong)


def test_a_proof_is_written_in_one_way_only() -> None:
    other = server()
    one = client()
    challenge = other.evaluate(one.evaluate(None))
    final = one.evaluate(challenge)
    assert final.endswith(b"=")
    last = bytes([final[-2] + 1])  # changes a bit that base64 leaves over
    with pytest.raises(SaslAuthenticationError):
        other.evaluate(final[:-2] + last + b"=")
    assert other.authenticated is None


@given(st.integers(0, 3), st.data())
def test_no_changed_message_ever_authenticates(step: int, data: st.DataObject) -> None:
    """One byte inserted, deleted or replaced in any message: either the side that gets it refuses
    it, or one of them refuses a later one.
    """
    one, other = client(), server()
    said = [one.evaluate(None)]
    try:
        for number in range(4):
            if number == step:
                said[-1] = _change(data, said[-1])
            if number in (0, 2):
                said.append(other.evaluate(said[-1]))
            else:
                said.append(one.evaluate(said[-1]))
    except SaslAuthenticationError:
        pass
    else:
        raise AssertionError("a changed message went through")
    assert not one.is_complete
    if step < 3:  # the last message is what the broker sends when it is sure
        assert other.authenticated is None


def _change(data: st.DataObject, message: bytes) -> bytes:
    position = data.draw(st.integers(0, len(message) - 1))
    byte = bytes([data.draw(st.integers(0, 255).filter(lambda b: b != message[position]))])
    kind = data.draw(st.sampled_from(("insert", "delete", "replace")))
    if kind == "insert":
        return message[:position] + byte + message[position:]
    return message[:position] + (b"" if kind == "delete" else byte) + message[position + 1 :]


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_garbage_gives_errors_of_the_exchange(messages: list[bytes]) -> None:
    one, other = client(), server()
    one.evaluate(None)
    for message in messages:
        for side in (one, other):
            with pytest.raises(SaslAuthenticationError):
                side.evaluate(message)
