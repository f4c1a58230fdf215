"""SCRAM credentials are set, described, used and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest
from millstream.protocol.outgoing import Outgoing
from millstream.security.sasl.scram import ScramClient
from millstream.security.sasl.scram_credential import ScramMechanism, salt_password
from millstream.server.sasl_session import SaslSession

SHA_256 = ScramMechanism.SCRAM_SHA_256
SHA_512 = ScramMechanism.SCRAM_SHA_512


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    settings = {
        "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    broker = AdminBroker(tmp_path, settings)
    yield broker
    broker.close()


def upsertion(
    name: str,
    mechanism: ScramMechanism = SHA_256,
    password: str = "secret",
    iterations: int = 4096,
    salt: bytes = b"salt",
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.value,
        iterations=iterations,
        salt=salt,
        salted_password=salt_password(mechanism, password, salt, iterations),
    )


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    broker: AdminBroker,
    *changes: ScramCredentialUpsertion | ScramCredentialDeletion,
) -> dict[str, tuple[ErrorCode, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    answer = broker.call(request, 0, AlterUserScramCredentialsResponse)
    return {
        each.user: (ErrorCode.of(each.error_code), each.error_message) for each in answer.results
    }


def described(broker: AdminBroker, *users: str) -> dict[str, dict[int, int] | ErrorCode]:
    wanted = [UserName(name=user) for user in users] if users else None
    request = DescribeUserScramCredentialsRequest(users=wanted)
    answer = broker.call(request, 0, DescribeUserScramCredentialsResponse)
    assert answer.error_code == 0
    return {
        each.user: ErrorCode.of(each.error_code)
        if each.error_code
        else {info.mechanism: info.iterations for info in each.credential_infos}
        for each in answer.results
    }


def test_credentials_are_set_and_described(broker: AdminBroker) -> None:
    done = (ErrorCode.NONE, None)
    found = alter(broker, upsertion("ann"), upsertion("a,b=c/d ü"), upsertion("<default>"))
    assert found == {"ann": done, "a,b=c/d ü": done, "<default>": done}
    assert alter(broker, upsertion("ann", SHA_512, iterations=8192)) == {"ann": done}
    assert described(broker) == {
        "ann": {1: 4096, 2: 8192},
        "a,b=c/d ü": {1: 4096},
        "<default>": {1: 4096},
    }
    assert described(broker, "ann", "bob", "ann", "<default>") == {
        "ann": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "<default>": {1: 4096},
    }


def test_a_credential_is_deleted_and_the_other_one_stays(broker: AdminBroker) -> None:
    alter(broker, upsertion("ann"))
    alter(broker, upsertion("ann", SHA_512))
    assert alter(broker, deletion("ann")) == {"ann": (ErrorCode.NONE, None)}
    assert described(broker) == {"ann": {2: 4096}}
    code, text = alter(broker, deletion("ann"))["ann"]
    assert code is ErrorCode.RESOURCE_NOT_FOUND
    assert text == "Attempt to delete a user credential that does not exist"
    alter(broker, deletion("ann", 2))
    assert described(broker) == {}
    assert broker.metadata.entities.all(EntityKind.USER) == {}


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (
            upsertion("bad", iterations=4095),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too few iterations",
        ),
        (
            upsertion("bad", iterations=16_385),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too many iterations",
        ),
        (deletion("bad", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion("bad", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            ScramCredentialUpsertion(
                name="bad", mechanism=1, iterations=4096, salt=b"", salted_password=bytes(32)
            ),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "A salt has 1 to 1024 bytes",
        ),
        (
            ScramCredentialUpsertion(
                name="bad", mechanism=2, iterations=4096, salt=b"s", salted_password=bytes(32)
            ),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "A salted password of SCRAM-SHA-512 has 64 bytes",
        ),
    ],
)
def test_one_user_s_error_is_not_another_one_s(
    broker: AdminBroker,
    change: ScramCredentialUpsertion | ScramCredentialDeletion,
    code: ErrorCode,
    text: str,
) -> None:
    found = alter(broker, change, upsertion("good"))
    assert found == {change.name: (code, text), "good": (ErrorCode.NONE, None)}
    assert described(broker) == {"good": {1: 4096}}


def test_a_user_is_named_once(broker: AdminBroker) -> None:
    alter(broker, upsertion("ann"))
    twice = (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    assert alter(broker, upsertion("ann"), upsertion("ann", SHA_512)) == {"ann": twice}
    assert alter(broker, deletion("ann"), upsertion("ann")) == {"ann": twice}
    assert described(broker) == {"ann": {1: 4096}}


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_user_authenticates_with_its_password_until_it_changes(
    broker: AdminBroker, mechanism: ScramMechanism
) -> None:
    alter(broker, upsertion("ann", mechanism, "one"))
    assert authenticates(broker, mechanism, "one")
    assert not authenticates(broker, mechanism, "two")
    alter(broker, upsertion("ann", mechanism, "two"))
    assert not authenticates(broker, mechanism, "one")
    assert authenticates(broker, mechanism, "two")
    alter(broker, deletion("ann", mechanism.value))
    assert not authenticates(broker, mechanism, "two")


def test_a_user_that_there_is_not_looks_like_the_others(broker: AdminBroker) -> None:
    def challenge(name: str) -> bytes:
        session = broker.connect("SASL_PLAINTEXT")
        for request, version in (
            (SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1),
            (SaslAuthenticateRequest(auth_bytes=f"n,,n={name},r=abc".encode()), 2),
        ):
            frame = encode_request(request, version, 7, "t").join()[4:]
            served = session.serve(memoryview(bytearray(frame)))
        assert isinstance(served, Outgoing)
        answer = decode_response(36, 2, served.join()[4:])[1]
        assert isinstance(answer, SaslAuthenticateResponse)
        return bytes(answer.auth_bytes)

    assert challenge("nobody").endswith(b",i=4096")
    alter(broker, upsertion("ann", SHA_512, iterations=8192, salt=b"s" * 25))
    known, unknown = challenge("ann").split(b","), challenge("nobody").split(b",")
    assert known[2] == unknown[2] == b"i=8192"
    assert len(known[1]) == len(unknown[1])


def authenticates(broker: AdminBroker, mechanism: ScramMechanism, password: str) -> bool:
    session = broker.connect("SASL_PLAINTEXT")
    assert isinstance(session, SaslSession)

    def ask(request: Request, version: int) -> Response | None:
        frame = encode_request(request, version, 7, "t").join()[4:]
        served = session.serve(memoryview(bytearray(frame)))
        if not isinstance(served, Outgoing):
            return None
        return decode_response(request.API_KEY, version, served.join()[4:])[1]

    ask(SaslHandshakeRequest(mechanism=mechanism.mechanism), 1)
    client = ScramClient(mechanism, username="ann", password=password, nonce="abc")
    challenge: bytes | None = None
    while not client.is_complete:
        token = client.evaluate(challenge)
        if client.is_complete:
            break
        answer = ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer is None:
            return False
        assert isinstance(answer, SaslAuthenticateResponse)
        challenge = bytes(answer.auth_bytes)
    return session.is_authenticated
