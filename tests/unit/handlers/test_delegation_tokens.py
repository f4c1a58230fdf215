"""Delegation tokens are created, described, renewed, ended, and used to authenticate."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.entities import EntityKind
from millstream.model.errors import ConnectionClosedError, ErrorCode
from millstream.net.peer import Session
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from millstream.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from millstream.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from millstream.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.authentication.delegation_tokens import TokenExpiry
from millstream.security.sasl.scram import ScramClient
from millstream.security.sasl.scram_credential import ScramMechanism

R = TypeVar("R", bound=Response)

USERS = "ann", "bob", "eve"
SETTINGS = {
    "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{name}s"' for name in USERS)
        + ";"
    ),
    "delegation.token.secret.key": "the secret",
    "delegation.token.max.lifetime.ms": "10000",
    "delegation.token.expiry.time.ms": "1000",
    "delegation.token.expiry.check.interval.ms": "5000",
}


class Client:
    """One authenticated connection, or one of the listener without authentication."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def ask(self, request: Request, version: int, response: type[R]) -> R:
        frame = encode_request(request, version, 7, "t").join()[4:]
        served = self.session.serve(memoryview(bytearray(frame)))
        if not isinstance(served, Outgoing):
            assert served is not None
            served = served.result()
        assert isinstance(served, Outgoing)
        answer = decode_response(request.API_KEY, version, served.join()[4:])[1]
        assert isinstance(answer, response)
        return answer

    def create(self, *renewers: str, lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
        wanted = [
            CreatableRenewers(principal_type="User", principal_name=name) for name in renewers
        ]
        request = CreateDelegationTokenRequest(renewers=wanted, max_lifetime_ms=lifetime_ms)
        return self.ask(request, 3, CreateDelegationTokenResponse)

    def described(self, *owners: str, all_owners: bool = True) -> list[str]:
        named = [
            DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
            for name in owners
        ]
        request = DescribeDelegationTokenRequest(owners=named if named or not all_owners else None)
        answer = self.ask(request, 3, DescribeDelegationTokenResponse)
        assert answer.error_code == 0
        return [each.token_id for each in answer.tokens]

    def renew(self, hmac: bytes, period_ms: int = -1) -> tuple[ErrorCode, int]:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = self.ask(request, 2, RenewDelegationTokenResponse)
        return ErrorCode.of(answer.error_code), answer.expiry_timestamp_ms

    def expire(self, hmac: bytes, period_ms: int = -1) -> tuple[ErrorCode, int]:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = self.ask(request, 2, ExpireDelegationTokenResponse)
        return ErrorCode.of(answer.error_code), answer.expiry_timestamp_ms


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    broker = AdminBroker(tmp_path, SETTINGS)
    yield broker
    broker.close()


def login(broker: AdminBroker, name: str) -> Client:
    client = Client(broker.connect("SASL_PLAINTEXT"))
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    token = f"\0{name}\0{name}s".encode()
    client.ask(SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse)
    return client


def login_with_token(
    broker: AdminBroker,
    token_id: str,
    hmac: bytes,
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256,
) -> tuple[Client, int] | None:
    """Return the connection, and how long its session holds; None for a token that is refused."""
    client = Client(broker.connect("SASL_PLAINTEXT"))
    client.ask(SaslHandshakeRequest(mechanism=mechanism.mechanism), 1, SaslHandshakeResponse)
    password = base64.b64encode(hmac).decode()
    scram = ScramClient(mechanism, username=token_id, password=password, nonce="abc", by_token=True)
    first = SaslAuthenticateRequest(auth_bytes=scram.evaluate(None))
    answer = client.ask(first, 2, SaslAuthenticateResponse)
    final = SaslAuthenticateRequest(auth_bytes=scram.evaluate(bytes(answer.auth_bytes)))
    frame = encode_request(final, 2, 7, "t").join()[4:]
    served = client.session.serve(memoryview(bytearray(frame)))
    if not isinstance(served, Outgoing):
        return None
    last = decode_response(final.API_KEY, 2, served.join()[4:])[1]
    assert isinstance(last, SaslAuthenticateResponse)
    assert scram.evaluate(bytes(last.auth_bytes)) == b""
    return client, last.session_lifetime_ms


def test_a_token_is_created(broker: AdminBroker) -> None:
    now = broker.clock.now_ms()
    token = login(broker, "ann").create("bob")
    assert token.error_code == 0
    assert (token.principal_type, token.principal_name) == ("User", "ann")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == (
        "User",
        "ann",
    )
    assert token.issue_timestamp_ms == now
    assert token.expiry_timestamp_ms == now + 1000
    assert token.max_timestamp_ms == now + 10_000
    assert len(token.hmac) == 64
    (stored,) = broker.metadata.entities.all(EntityKind.DELEGATION_TOKEN).values()
    assert stored["owner"] == "User:ann"
    assert base64.b64encode(bytes(token.hmac)).decode() not in str(stored)
    short = login(broker, "ann").create(lifetime_ms=500)
    assert short.expiry_timestamp_ms == short.max_timestamp_ms == now + 500


def test_who_may_ask(broker: AdminBroker) -> None:
    for client in (Client(broker.connect("PLAINTEXT")), by_token(broker)):
        answer = client.create()
        assert ErrorCode.of(answer.error_code) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (answer.hmac, answer.token_id, answer.issue_timestamp_ms) == (b"", "", -1)
        refused = (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
        assert client.renew(b"x") == refused
        assert client.expire(b"x") == refused
        described = client.ask(
            DescribeDelegationTokenRequest(owners=None), 3, DescribeDelegationTokenResponse
        )
        assert ErrorCode.of(described.error_code) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def by_token(broker: AdminBroker) -> Client:
    token = login(broker, "ann").create()
    found = login_with_token(broker, token.token_id, bytes(token.hmac))
    assert found is not None
    return found[0]


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_the_holder_of_a_token_is_its_owner(broker: AdminBroker, mechanism: ScramMechanism) -> None:
    token = login(broker, "ann").create()
    hmac = bytes(token.hmac)
    found = login_with_token(broker, token.token_id, hmac, mechanism)
    assert found is not None
    client, session_ms = found
    assert session_ms == 1000
    principal = client.session._connection.principal  # type: ignore[attr-defined]
    assert str(principal) == "User:ann"
    assert principal.token_authenticated
    wrong = bytes([hmac[0] ^ 1]) + hmac[1:]
    assert login_with_token(broker, token.token_id, wrong, mechanism) is None
    assert login_with_token(broker, "another", hmac, mechanism) is None
    broker.clock.advance(1001)
    assert login_with_token(broker, token.token_id, hmac, mechanism) is None


def test_owners_and_renewers_renew(broker: AdminBroker) -> None:
    ann, bob, eve = (login(broker, name) for name in USERS)
    now = broker.clock.now_ms()
    token = ann.create("bob")
    hmac = bytes(token.hmac)
    broker.clock.advance(900)
    assert eve.renew(hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert bob.renew(hmac) == (ErrorCode.NONE, now + 1900)
    assert bob.renew(hmac, 300) == (ErrorCode.NONE, now + 1200)
    assert ann.renew(hmac, 5000) == (ErrorCode.NONE, now + 1900)
    assert ann.renew(b"another") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    for step in range(8):
        broker.clock.advance(1000)
        code, expires = ann.renew(hmac)
        assert code is ErrorCode.NONE, step
        assert expires <= token.max_timestamp_ms
    assert ann.renew(hmac) == (ErrorCode.NONE, now + 9900)
    broker.clock.advance(1001)
    assert ann.renew(hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_owners_and_renewers_end_tokens(broker: AdminBroker) -> None:
    ann, bob, eve = (login(broker, name) for name in USERS)
    now = broker.clock.now_ms()
    token = ann.create("bob")
    hmac = bytes(token.hmac)
    assert eve.expire(hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert ann.expire(b"") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert bob.expire(hmac, 100) == (ErrorCode.NONE, now + 100)
    assert bob.expire(hmac, -1) == (ErrorCode.NONE, broker.clock.now_ms())
    assert ann.expire(hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert broker.metadata.entities.all(EntityKind.DELEGATION_TOKEN) == {}
    assert login_with_token(broker, token.token_id, hmac) is None


def test_tokens_are_described(broker: AdminBroker) -> None:
    ann, bob, eve = (login(broker, name) for name in USERS)
    first, second = ann.create("bob").token_id, bob.create().token_id
    assert set(ann.described()) == {first, second}  # without an authorizer all may be seen
    assert eve.described("ann") == [first]
    assert set(eve.described("bob")) == {first, second}
    assert eve.described("eve") == []
    assert eve.described(all_owners=False) == []


def test_renewers_are_users(broker: AdminBroker) -> None:
    group = CreatableRenewers(principal_type="Group", principal_name="x")
    request = CreateDelegationTokenRequest(renewers=[group], max_lifetime_ms=-1)
    answer = login(broker, "ann").ask(request, 3, CreateDelegationTokenResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_token_for_another_owner(broker: AdminBroker) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
    )
    answer = login(broker, "ann").ask(request, 3, CreateDelegationTokenResponse)
    assert answer.error_code == 0
    assert answer.principal_name == "bob"
    assert answer.token_requester_principal_name == "ann"


def test_nobody_has_more_tokens_than_one_may_have(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.security.delegation_tokens.MAX_TOKENS", 3)
    ann, bob = login(broker, "ann"), login(broker, "bob")
    made = [ann.create() for _ in range(3)]
    assert not any(each.error_code for each in made)
    assert ErrorCode.of(ann.create().error_code) is ErrorCode.POLICY_VIOLATION
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="eve", renewers=[], max_lifetime_ms=-1
    )
    answer = ann.ask(request, 3, CreateDelegationTokenResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.POLICY_VIOLATION
    assert bob.create().error_code == 0
    ann.expire(bytes(made[0].hmac))
    assert ann.create().error_code == 0


def test_nobody_fills_the_memory_with_renewers(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.security.delegation_tokens.MAX_RENEWERS_SIZE", 1000)
    ann = login(broker, "ann")
    assert ann.create("b" * 600).error_code == 0
    assert ErrorCode.of(ann.create("c" * 600).error_code) is ErrorCode.POLICY_VIOLATION
    assert ann.create().error_code == 0


def test_a_session_ends_when_the_token_ended_that_it_began_with(broker: AdminBroker) -> None:
    """As in Kafka: a token that is ended or renewed changes nothing for who is connected."""
    ann = login(broker, "ann")
    ended, renewed, left = (ann.create() for _ in range(3))
    clients = []
    for token in (ended, renewed, left):
        found = login_with_token(broker, token.token_id, bytes(token.hmac))
        assert found is not None
        client, session_ms = found
        assert session_ms == 1000
        clients.append(client)
    broker.clock.advance(500)
    assert ann.expire(bytes(ended.hmac))[0] is ErrorCode.NONE
    assert ann.renew(bytes(renewed.hmac))[0] is ErrorCode.NONE
    assert login_with_token(broker, ended.token_id, bytes(ended.hmac)) is None
    describe = encode_request(DescribeDelegationTokenRequest(owners=None), 3, 7, "t").join()[4:]
    for client in clients:
        client.session.serve(memoryview(bytearray(describe)))
    broker.clock.advance(501)
    for client in clients:
        with pytest.raises(ConnectionClosedError, match="the session is over"):
            client.session.serve(memoryview(bytearray(describe)))
    assert login_with_token(broker, renewed.token_id, bytes(renewed.hmac)) is not None
    assert login_with_token(broker, left.token_id, bytes(left.hmac)) is None


def test_expired_tokens_are_deleted(broker: AdminBroker) -> None:
    expiry = TokenExpiry(broker.config, broker.clock, broker.controller)
    login(broker, "ann").create()
    broker.clock.advance(4900)
    held = login(broker, "bob").create().token_id
    assert len(broker.metadata.entities.all(EntityKind.DELEGATION_TOKEN)) == 2
    broker.clock.advance(100)
    assert list(broker.metadata.entities.all(EntityKind.DELEGATION_TOKEN)) == [held]
    expiry.close()
    broker.clock.advance(20_000)
    assert len(broker.metadata.entities.all(EntityKind.DELEGATION_TOKEN)) == 1


def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    settings = {name: text for name, text in SETTINGS.items() if not name.endswith("secret.key")}
    broker = AdminBroker(tmp_path, settings)
    ann = login(broker, "ann")
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert ErrorCode.of(ann.create().error_code) is disabled
    assert ann.renew(b"x") == (disabled, 0)
    assert ann.expire(b"x") == (disabled, 0)
    answer = ann.ask(
        DescribeDelegationTokenRequest(owners=None), 3, DescribeDelegationTokenResponse
    )
    assert ErrorCode.of(answer.error_code) is disabled
    assert login_with_token(broker, "any", b"x") is None
    broker.close()
