"""Requests for the controller, sent to another broker: nobody may do more by this way, or less.

Two brokers, one of them the controller. Each of these requests is sent to either of them, by a
client that may do it, by one that may not, and while the two brokers know different rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.unit.handlers.access_calls import (
    ALTER,
    CALLS,
    CREATE,
    OF_TOKENS,
    Call,
    Need,
    cluster,
    topic,
)
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.handlers.inter_broker import FIND_CONTROLLER_MS
from millstream.handlers.routes import FORWARDED
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode
from millstream.model.principal import KafkaPrincipal
from millstream.net.peer import Peer, Session
from millstream.protocol.api import APIS, ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.schema import Struct
from millstream.security.authorizer import Authorizer, Pattern

ANN: Final = KafkaPrincipal("User", "ann")
ANN_BY_TOKEN: Final = KafkaPrincipal("User", "ann", token_authenticated=True)
BROKER: Final = KafkaPrincipal("User", "broker-1")
HOST: Final = "10.0.0.9"
"""Where ann is; her rules are for this host alone, which is no broker's."""

REFUSED: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
    ErrorCode.GROUP_AUTHORIZATION_FAILED.code,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED.code,
}
NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER.code
NOT_A_TOKENS: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code

LAST: Final = {key: api.last_version for key, api in APIS.items()}
OF_BOB: Final = {"owner_principal_type": "User", "owner_principal_name": "bob"}
CHANGING: Final = (
    Call(
        "create_topics-that-changes",
        ApiKey.CREATE_TOPICS,
        {
            "topics": [{"name": "n", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 1000,
        },
        (Need(CREATE, AclResource.TOPIC, "n", ErrorCode.TOPIC_AUTHORIZATION_FAILED),),
        LAST[ApiKey.CREATE_TOPICS],
    ),
    Call(
        "alter_client_quotas-that-changes",
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "b"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                }
            ]
        },
        (cluster(AclOperation.ALTER_CONFIGS),),
        LAST[ApiKey.ALTER_CLIENT_QUOTAS],
    ),
    Call(
        "alter_user_scram_credentials-that-changes",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {
            "upsertions": [
                {
                    "name": "b",
                    "mechanism": 1,
                    "iterations": 4096,
                    "salt": b"salt",
                    "salted_password": bytes(32),
                }
            ]
        },
        (cluster(ALTER),),
        LAST[ApiKey.ALTER_USER_SCRAM_CREDENTIALS],
    ),
    Call(
        "incremental_alter_configs-that-changes",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "t",
                    "configs": [{"name": "retention.ms", "value": "1234"}],
                }
            ]
        },
        (topic(AclOperation.ALTER_CONFIGS),),
        LAST[ApiKey.INCREMENTAL_ALTER_CONFIGS],
    ),
    Call(
        "create_delegation_token-of-another",
        ApiKey.CREATE_DELEGATION_TOKEN,
        OF_BOB,
        (
            Need(
                AclOperation.CREATE_TOKENS,
                AclResource.USER,
                "User:bob",
                ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            ),
        ),
        LAST[ApiKey.CREATE_DELEGATION_TOKEN],
    ),
)
ASKED_OF_IT: Final = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
}
"""Requests that clients send to the controller itself: they are not handed on."""

OWN: Final = 4, 8
"""Types of resources that are a broker's own: itself and its loggers."""

CALLS_HERE: Final = [
    call
    for call in (*CALLS, *CHANGING)
    if call.key in FORWARDED | ASKED_OF_IT
    and not any(each.get("resource_type") in OWN for each in call.fields.get("resources", ()))
]
HANDED_ON: Final = [call for call in CALLS_HERE if call.key in FORWARDED]
NOT_HANDED_ON: Final = [call for call in CALLS_HERE if call.key in ASKED_OF_IT]


@dataclass
class Wire:
    """A cluster of which the controller is another broker."""

    controller: AdminBroker
    asked: list[Request] = field(default_factory=list)
    listener_name = "BROKERS"

    @property
    def channel(self) -> Wire:
        return self

    def forward(self, request: Request, version: int) -> Deferred[Response]:
        self.asked.append(request)
        peer = Peer(9, self.listener_name, "10.0.0.8", 4242, principal=BROKER)
        session = self.controller.dispatcher.open_session(peer)
        return self.controller.start(request, version, session=session)


class Pair:
    """Broker 1, and broker 2, which is the controller; each has rules of its own."""

    def __init__(self, directory: Path) -> None:
        made = []
        for number in (1, 2):
            home = directory / str(number)
            home.mkdir()
            settings = {
                "node.id": str(number),
                "log.dirs": str(home),
                "delegation.token.secret.key": "the secret",
            }
            made.append(AdminBroker(home, settings))
        self.other, self.controller = made
        for broker in made:
            self.topic_id = broker.create("t").topic_id
        self.wire = Wire(self.controller)
        self.other.services.cluster = self.controller.services.cluster = cast("Any", self.wire)
        self.other.controller_state.end_term()
        self.allow((), made)

    def allow(self, needs: Iterable[Need], brokers: Iterable[AdminBroker] = ()) -> None:
        """Have brokers, both unless told, know that ann may do these things and no others."""
        for broker in brokers or (self.other, self.controller):
            authorizer = Authorizer([str(BROKER)])
            rules: dict[Pattern, list[Acl]] = {}
            for each in needs:
                pattern = each.resource, PatternType.LITERAL, each.name
                rules.setdefault(pattern, []).append(rule(each))
            authorizer.replace(rules)
            broker.services.authorizer = authorizer

    def ask(self, broker: AdminBroker, call: Call, who: KafkaPrincipal = ANN) -> Response:
        """Return what a broker answers to ann."""
        answer = broker.start(
            call.request(self.topic_id), call.version, session=session_of(broker, who)
        )
        if not answer.done:  # it looks for a controller
            broker.clock.advance(FIND_CONTROLLER_MS + 200)
        return answer.result()

    def state(self) -> tuple[object, ...]:
        """Return what the controller has stored."""
        metadata = self.controller.metadata
        return (
            {each.name: each.config for each in metadata.topics()},
            [dict(metadata.entities.all(kind)) for kind in EntityKind],
        )


def session_of(broker: AdminBroker, who: KafkaPrincipal) -> Session:
    return broker.dispatcher.open_session(Peer(3, "PLAINTEXT", HOST, 4242, principal=who))


def rule(need: Need) -> Acl:
    return Acl(
        resource=need.resource,
        name=need.name,
        principal=str(ANN),
        operation=need.operation,
        permission=Permission.ALLOW,
        pattern=PatternType.LITERAL,
        host=HOST,
    )


def codes(message: Struct) -> Iterator[int]:
    """Yield every error code of an answer."""
    for each in message.FIELDS:
        value = getattr(message, each.name)
        if each.name == "error_code":
            yield value
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Struct):
                yield from codes(part)


def body(answer: Response, version: int) -> bytes:
    """Return an answer as bytes, without what differs from token to token."""
    if isinstance(answer, CreateDelegationTokenResponse) and not answer.error_code:
        assert answer.token_id
        assert answer.hmac
        answer.token_id, answer.hmac = "", b""
    return bytes(answer.encode_body(version))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.other.close()
    made.controller.close()


handed_on = pytest.mark.parametrize("call", HANDED_ON, ids=lambda call: call.label)
not_handed_on = pytest.mark.parametrize("call", NOT_HANDED_ON, ids=lambda call: call.label)


@handed_on
def test_who_may_not_is_refused_alike(pair: Pair, call: Call) -> None:
    before = pair.state()
    through, direct = pair.ask(pair.other, call), pair.ask(pair.controller, call)
    assert set(codes(through)) & REFUSED == {call.needs[0].error.code}
    assert body(through, call.version) == body(direct, call.version)
    assert pair.state() == before
    assert pair.wire.asked == []  # its own broker has refused it


@handed_on
def test_who_may_is_answered_alike(pair: Pair, call: Call) -> None:
    pair.allow(call.needs)
    through, direct = pair.ask(pair.other, call), pair.ask(pair.controller, call)
    assert not set(codes(through)) & {*REFUSED, NOT_CONTROLLER}
    assert body(through, call.version) == body(direct, call.version)
    assert pair.wire.asked


@pytest.mark.parametrize(
    "call", [call for call in CHANGING if call.key in FORWARDED], ids=lambda call: call.label
)
def test_what_is_handed_on_is_done(pair: Pair, call: Call) -> None:
    before = pair.state()
    pair.allow(call.needs)
    assert set(codes(pair.ask(pair.other, call))) == {0}
    assert pair.state() != before


@handed_on
def test_the_controller_decides_by_the_rules_that_it_knows(pair: Pair, call: Call) -> None:
    """A broker may not know yet of a rule that is gone."""
    before = pair.state()
    pair.allow(call.needs, [pair.other])
    assert set(codes(pair.ask(pair.other, call))) & REFUSED == {call.needs[0].error.code}
    assert pair.wire.asked
    assert pair.state() == before


@handed_on
def test_a_broker_refuses_by_the_rules_that_it_knows(pair: Pair, call: Call) -> None:
    before = pair.state()
    pair.allow(call.needs, [pair.controller])
    assert set(codes(pair.ask(pair.other, call))) & REFUSED
    assert pair.wire.asked == []
    assert pair.state() == before


@not_handed_on
def test_what_is_asked_of_the_controller_alone_is_done_by_no_other(pair: Pair, call: Call) -> None:
    before = pair.state()
    assert set(codes(pair.ask(pair.other, call))) & {*REFUSED, NOT_CONTROLLER}
    pair.allow(call.needs)
    assert NOT_CONTROLLER in set(codes(pair.ask(pair.other, call)))
    assert pair.wire.asked == []
    assert pair.state() == before


@not_handed_on
def test_the_controller_itself_refuses_it(pair: Pair, call: Call) -> None:
    before = pair.state()
    assert set(codes(pair.ask(pair.controller, call))) & REFUSED == {call.needs[0].error.code}
    assert pair.state() == before
    pair.allow(call.needs)
    assert not set(codes(pair.ask(pair.controller, call))) & {*REFUSED, NOT_CONTROLLER}


def test_a_token_makes_no_token_by_either_way(pair: Pair) -> None:
    (call,) = (each for each in CHANGING if each.key is ApiKey.CREATE_DELEGATION_TOKEN)
    pair.allow(call.needs)
    before = pair.state()
    through = pair.ask(pair.other, call, ANN_BY_TOKEN)
    direct = pair.ask(pair.controller, call, ANN_BY_TOKEN)
    assert set(codes(through)) == {NOT_A_TOKENS}
    assert body(through, call.version) == body(direct, call.version)
    assert pair.state() == before


@pytest.mark.parametrize("end", ["renew", "expire"])
def test_another_ones_token_is_nobodys_by_either_way(pair: Pair, end: str) -> None:
    made = pair.controller.start(
        CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        3,
        session=session_of(pair.controller, KafkaPrincipal("User", "bob")),
    ).result()
    assert isinstance(made, CreateDelegationTokenResponse)
    assert made.hmac
    call = Call(end, ApiKey[f"{end.upper()}_DELEGATION_TOKEN"], {"hmac": made.hmac}, (), 2)
    before = pair.state()
    through, direct = pair.ask(pair.other, call), pair.ask(pair.controller, call)
    assert set(codes(through)) == {ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH.code}
    assert body(through, 2) == body(direct, 2)
    assert pair.wire.asked
    assert pair.state() == before
    pair.controller.clock.advance(1000)
    bobs = pair.ask(pair.other, call, KafkaPrincipal("User", "bob"))
    assert set(codes(bobs)) == {0}
    assert pair.state() != before


def test_everything_that_is_handed_on_is_here() -> None:
    assert {call.key for call in HANDED_ON} | OF_TOKENS >= FORWARDED
    assert {call.key for call in NOT_HANDED_ON} == ASKED_OF_IT
