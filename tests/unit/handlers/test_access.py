"""Every API × what it touches: allowed, denied, missing; and that no API was forgotten.

The broker is a whole one, without sockets. A client without any rule must be refused with Kafka's
error, with the rules that Kafka needs it must not, and with one of them taken away it must be
refused again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.handlers.access_calls import (
    CALLS,
    HIDING,
    OF_TOKENS,
    Call,
    Need,
    cluster,
    one_batch,
    topic,
    transaction,
)
from tests.unit.handlers.admin_broker import joined

from millstream.config.broker import BrokerConfig
from millstream.controller.topic_changes import NewTopic
from millstream.handlers.access import decisions_of
from millstream.handlers.access_rules import RULES, Apart, Open
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.handlers.routes import INTER_BROKER_ROUTES, ROUTES
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import acl_key, acl_value
from millstream.model.errors import ConnectionClosedError, ErrorCode
from millstream.model.principal import KafkaPrincipal
from millstream.model.topic import TopicId
from millstream.net.peer import Peer, Session
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.protocol.schema import Struct
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.services import Services
from millstream.server.broker import Broker
from millstream.server.dispatch import DispatchSession

NOT_ALLOWED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
    ErrorCode.GROUP_AUTHORIZATION_FAILED.code,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED.code,
}
LIMIT_S = 20
LABELS = {call.label: call for call in CALLS}
ANONYMOUS = "User:ANONYMOUS"


class AuthorizingBroker:
    """A broker with an authorizer; every client is ANONYMOUS."""

    def __init__(self, directory: Path, more_settings: Mapping[str, str] = {}) -> None:
        self._loop = asyncio.new_event_loop()
        settings = {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.flush.policy": "os",
            "authorizer.class.name": "standard",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "delegation.token.secret.key": "a secret of this test",
            **more_settings,
        }
        self._broker = Broker(BrokerConfig(settings), self._loop, on_fatal=lambda: None)
        self._broker.start()
        dispatcher = self._broker._dispatcher
        assert dispatcher is not None
        self.services: Services = dispatcher._services
        self._ids = iter(range(1, 1_000_000))
        self._keys: list[str] = []
        self.allow_everything()
        self.create_topic()
        assert self.errors(LABELS["find_coordinator-of-a-group"]) == {0}
        self.prepare()

    def prepare(self) -> None:
        """See that the topic ``t`` is there, and the group ``g`` with an offset."""
        self.allow_everything()
        self.create_topic()
        self.until(lambda: self.errors(LABELS["offset_commit-by-id"]) == {0})

    def create_topic(self) -> None:
        """Create the topic ``t`` where it is not there."""
        self.topic_id = self.id_of("t")

    def id_of(self, name: str) -> TopicId:
        """Return the id of a topic, which is created where it is not there."""
        if self.services.metadata.topic(name) is None:
            create = self.services.controller.topics.create_topics
            self.wait(create([NewTopic(name, 1)], validate_only=False))
        image = self.services.metadata.topic(name)
        assert image is not None
        return image.topic_id

    def stop(self) -> None:
        self._broker.stop()
        self._loop.close()

    def set_acls(self, *acls: Acl) -> None:
        """Let these be all rules there are."""
        by_key: dict[str, list[Acl]] = {}
        for acl in acls:
            by_key.setdefault(acl_key(acl.resource, acl.pattern, acl.name), []).append(acl)
        changes: dict[str, Any] = dict.fromkeys(self._keys)
        changes.update({key: acl_value(rules) for key, rules in by_key.items()})
        self._keys = list(by_key)
        self.services.metadata.entities.change(EntityKind.ACL, changes)

    def allow(self, *needs: Need) -> None:
        """Let the client do these things, and nothing else."""
        self.set_acls(*(rule(each.operation, each.resource, each.name) for each in needs))

    def allow_everything(self) -> None:
        self.set_acls(*(rule(AclOperation.ALL, each, "*") for each in AclResource if each > 1))

    def connect(self) -> Session:
        """Return the session of a client that has just connected."""
        return self._broker.open_session(Peer(next(self._ids), "PLAINTEXT", "10.0.0.7", 4242))

    def ask(self, request: Request, version: int, session: Session | None = None) -> Response:
        """Answer a request, on a connection of its own unless one is given."""
        own = session is None
        session = session or self.connect()
        frame = encode_request(request, version, 7, "tester").join()
        served = session.serve(memoryview(bytearray(frame))[4:])
        if isinstance(served, Deferred):
            served = self.wait(served)
        assert served is not None
        _, response = decode_response(request.API_KEY, version, joined(served)[4:])
        if own:
            session.closed()
        return response

    def errors(self, call: Call) -> set[int]:
        """Return all error codes of the answer."""
        return set(_codes(self.ask(call.request(self.topic_id), call.version)))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Let the broker go on until something is so, as once a coordinator has loaded."""
        for _ in range(500):
            if is_so():
                return
            self._loop.call_later(0.01, self._loop.stop)
            self._loop.run_forever()
        raise AssertionError("it did not come to be so")

    def wait(self, reply: Deferred[Any]) -> Any:
        if not reply.done:
            reply.on_done(lambda _: self._loop.stop())
            limit = self._loop.call_later(LIMIT_S, self._loop.stop)
            self._loop.run_forever()
            limit.cancel()
        return reply.result()


def rule(
    operation: AclOperation,
    resource: AclResource,
    name: str,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(
        resource=resource,
        name=name,
        principal=ANONYMOUS,
        operation=operation,
        permission=permission,
        pattern=PatternType.LITERAL,
    )


def _codes(message: Struct) -> Iterator[int]:
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from _codes(each)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingBroker]:
    made = AuthorizingBroker(tmp_path_factory.mktemp("authorizing"))
    yield made
    made.stop()


@pytest.fixture
def broker(running: AuthorizingBroker) -> AuthorizingBroker:
    running.prepare()
    return running


calls = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.label)


@calls
def test_without_a_rule_it_is_refused_with_kafkas_error(
    broker: AuthorizingBroker, call: Call
) -> None:
    broker.allow()
    assert broker.errors(call) & NOT_ALLOWED == {call.needs[0].error.code}


@calls
def test_each_rule_that_it_needs_is_asked_for(broker: AuthorizingBroker, call: Call) -> None:
    for missing in call.needs:
        broker.allow(*(each for each in call.needs if each is not missing))
        assert broker.errors(call) & NOT_ALLOWED == {missing.error.code}


@calls
def test_what_is_denied_stays_denied(broker: AuthorizingBroker, call: Call) -> None:
    for denied in call.needs:
        broker.set_acls(
            *(rule(each.operation, each.resource, each.name) for each in call.needs),
            rule(denied.operation, denied.resource, denied.name, Permission.DENY),
        )
        assert broker.errors(call) & NOT_ALLOWED


@calls
def test_with_the_rules_it_is_allowed(broker: AuthorizingBroker, call: Call) -> None:
    broker.allow(*call.needs)
    assert not broker.errors(call) & NOT_ALLOWED


def test_every_api_has_a_call_here() -> None:
    asked = {call.key for call in CALLS}
    open_ = {key for key in ApiKey if isinstance(RULES.get(key), Open)}
    assert asked | open_ | HIDING | OF_TOKENS == {route.key for route in ROUTES.values()}
    assert not asked & open_


def test_nothing_is_open_but_what_comes_before_authentication() -> None:
    assert {key for key, rule in RULES.items() if isinstance(rule, Open)} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }


def test_an_api_without_a_rule_cannot_be_a_route() -> None:
    for route in (*ROUTES.values(), *INTER_BROKER_ROUTES.values()):
        assert RULES[route.key] is route.rule
        if isinstance(route.rule, Apart):
            assert callable(route.module().handle_authorized)
    needs_cluster_action = RULES[ApiKey.PUSH_METADATA]
    assert {route.rule for route in INTER_BROKER_ROUTES.values()} == {needs_cluster_action}


# --- what is hidden, and what a client is told -------------------------------------------------


def _all_topics() -> MetadataRequest:
    return MetadataRequest(topics=None, include_topic_authorized_operations=True)


def test_topics_that_may_not_be_described_are_left_out_of_all_topics(
    broker: AuthorizingBroker,
) -> None:
    broker.allow()
    assert cast(MetadataResponse, broker.ask(_all_topics(), 12)).topics == []
    broker.allow(topic(AclOperation.WRITE))
    (found,) = cast(MetadataResponse, broker.ask(_all_topics(), 12)).topics
    assert found.name == "t"
    assert found.topic_authorized_operations == 1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE


@pytest.mark.parametrize("name", ["t", "missing"])
def test_a_refusal_does_not_tell_whether_a_topic_is_there(
    broker: AuthorizingBroker, name: str
) -> None:
    broker.allow()
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    (answer,) = cast(MetadataResponse, broker.ask(request, 12)).topics
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
    assert (answer.name, answer.topic_id, answer.partitions) == (name, bytes(16), [])
    assert broker.services.metadata.topic("missing") is None


def test_a_topic_by_id_is_refused_without_its_name(broker: AuthorizingBroker) -> None:
    broker.allow()
    wanted = [MetadataRequestTopic(name=None, topic_id=broker.topic_id)]
    (answer,) = cast(MetadataResponse, broker.ask(MetadataRequest(topics=wanted), 12)).topics
    assert (answer.name, answer.topic_id) == (None, broker.topic_id)


def test_groups_that_may_not_be_described_are_not_listed(broker: AuthorizingBroker) -> None:
    def listed() -> list[str]:
        answer = cast(ListGroupsResponse, broker.ask(ListGroupsRequest(), 5))
        assert answer.error_code == 0
        return [each.group_id for each in answer.groups]

    broker.allow()
    assert listed() == []
    broker.allow_everything()
    expected = listed()
    assert expected
    broker.allow(cluster(AclOperation.DESCRIBE))
    assert listed() == expected
    broker.set_acls(rule(AclOperation.READ, AclResource.GROUP, expected[0]))
    assert listed() == expected[:1]


def test_transactions_that_may_not_be_described_are_not_listed(broker: AuthorizingBroker) -> None:
    broker.allow_everything()
    broker.errors(LABELS["find_coordinator-of-a-transaction"])
    broker.until(lambda: broker.errors(LABELS["init_producer_id"]) == {0})

    def listed() -> list[str]:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        answer = cast(ListTransactionsResponse, broker.ask(request, 2))
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == ["x"]
    broker.allow()
    assert listed() == []
    broker.allow(transaction(AclOperation.DESCRIBE))
    assert listed() == ["x"]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ((), 0),
        ((cluster(AclOperation.CREATE),), 0),
        ((cluster(AclOperation.DESCRIBE),), 1 << AclOperation.DESCRIBE),
        (
            (cluster(AclOperation.ALTER),),
            1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE,
        ),
    ],
)
def test_what_may_be_done_with_the_cluster(
    broker: AuthorizingBroker, needs: tuple[Need, ...], expected: int
) -> None:
    broker.allow(*needs)
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = cast(DescribeClusterResponse, broker.ask(request, 2))
    assert answer.error_code == 0
    assert answer.cluster_authorized_operations == expected


def test_one_topic_of_several_is_refused_and_the_others_are_served(
    broker: AuthorizingBroker,
) -> None:
    broker.allow(topic(AclOperation.READ), topic(AclOperation.WRITE))
    parts = [PartitionProduceData(index=0, records=one_batch())]
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, partition_data=parts) for name in ("hidden", "t", "absent")
        ],
    )
    answer = cast(ProduceResponse, broker.ask(request, 12))
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
    assert {each.name: each.partition_responses[0].error_code for each in answer.responses} == {
        "t": 0,
        "hidden": refused,
        "absent": refused,
    }
    fetched = cast(
        FetchResponse,
        broker.ask(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic=name,
                        partitions=[
                            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                        ],
                    )
                    for name in ("hidden", "t")
                ],
            ),
            12,
        ),
    )
    of = {each.topic: each.partitions[0] for each in fetched.responses}
    assert of["hidden"].error_code == refused
    assert of["t"].error_code == 0
    assert of["t"].records


def test_nothing_is_answered_to_a_refused_produce_without_acks(broker: AuthorizingBroker) -> None:
    broker.allow()
    parts = [PartitionProduceData(index=0, records=one_batch())]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    with pytest.raises(ConnectionClosedError):
        broker.ask(ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics), 12)


def test_a_session_is_refused_as_soon_as_a_rule_is_taken_away(broker: AuthorizingBroker) -> None:
    """The session was read through, and the connection knows what it may read: both are forgotten
    with the rule.
    """
    broker.allow(topic(AclOperation.READ))
    session = broker.connect()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    named = [FetchTopic(topic_id=broker.topic_id, partitions=[partition])]

    def fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics
        )
        return cast(FetchResponse, broker.ask(request, 17, session))

    session_id = fetch(0, 0, named).session_id
    assert session_id
    for epoch in (1, 2, 3):
        assert not set(_codes(fetch(session_id, epoch, []))) & NOT_ALLOWED
    broker.allow(topic(AclOperation.DESCRIBE))
    refused = fetch(session_id, 4, [])
    assert set(_codes(refused)) & NOT_ALLOWED == {ErrorCode.TOPIC_AUTHORIZATION_FAILED.code}
    broker.allow(topic(AclOperation.READ))
    assert not set(_codes(fetch(session_id, 5, []))) & NOT_ALLOWED


@pytest.mark.parametrize("is_another", [False, True])
def test_a_topic_that_is_added_to_a_session_is_refused_each_time(
    broker: AuthorizingBroker, is_another: bool
) -> None:
    """Also where another connection adds it, and the session was found readable before."""
    broker.allow(topic(AclOperation.READ))
    hidden = broker.id_of("hidden")
    session, other = broker.connect(), broker.connect()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)

    def fetch(
        session_id: int, epoch: int, *topic_ids: TopicId, connection: Session = session
    ) -> FetchResponse:
        topics = [FetchTopic(topic_id=each, partitions=[partition]) for each in topic_ids]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics
        )
        return cast(FetchResponse, broker.ask(request, 17, connection))

    session_id = fetch(0, 0, broker.topic_id).session_id
    assert not set(_codes(fetch(session_id, 1))) & NOT_ALLOWED
    adding = other if is_another else session
    refused = {ErrorCode.TOPIC_AUTHORIZATION_FAILED.code}
    assert set(_codes(fetch(session_id, 2, hidden, connection=adding))) & NOT_ALLOWED == refused
    for epoch in (3, 4):
        (found,) = (
            each.partitions[0]
            for each in fetch(session_id, epoch).responses
            if each.topic_id == hidden
        )
        assert found.error_code in refused
        assert not found.records


def test_a_topic_that_was_unknown_when_a_session_began_is_refused_once_it_is_known(
    broker: AuthorizingBroker,
) -> None:
    broker.allow(topic(AclOperation.READ))
    hidden = broker.id_of("hidden")
    image = broker.services.metadata.topic("hidden")
    assert image is not None
    broker.services.metadata.remove("hidden")
    session = broker.connect()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    named = [
        FetchTopic(topic_id=each, partitions=[partition]) for each in (broker.topic_id, hidden)
    ]

    def fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics
        )
        return cast(FetchResponse, broker.ask(request, 17, session))

    session_id = fetch(0, 0, named).session_id
    fetch(session_id, 1, [])
    broker.services.metadata.update(image)
    refused = {ErrorCode.TOPIC_AUTHORIZATION_FAILED.code}
    assert set(_codes(fetch(session_id, 2, []))) & NOT_ALLOWED == refused


def test_a_client_that_names_itself_a_replica_is_not_served_as_a_consumer(
    broker: AuthorizingBroker,
) -> None:
    """What the connection may read as a consumer says nothing of what a follower may."""
    broker.allow(topic(AclOperation.READ))
    session = broker.connect()
    as_consumer, as_follower = LABELS["fetch-by-id"], LABELS["fetch-of-a-follower"]
    consumed = broker.ask(as_consumer.request(broker.topic_id), as_consumer.version, session)
    assert not set(_codes(consumed)) & NOT_ALLOWED
    followed = broker.ask(as_follower.request(broker.topic_id), as_follower.version, session)
    assert set(_codes(followed)) & NOT_ALLOWED


def test_a_transaction_needs_its_rule_though_the_topic_may_be_written(
    broker: AuthorizingBroker,
) -> None:
    """What the connection may write says nothing of the transactional ids it may use."""
    broker.allow(topic(AclOperation.WRITE))
    session = broker.connect()
    plain = LABELS["produce-by-id"]
    written = broker.ask(plain.request(broker.topic_id), plain.version, session)
    assert not set(_codes(written)) & NOT_ALLOWED
    builder = BatchBuilder(
        BatchOptions(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    builder.append(1_700_000_000_000, None, b"x")
    in_transaction = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                topic_id=broker.topic_id,
                partition_data=[PartitionProduceData(index=0, records=bytes(builder.build()))],
            )
        ],
    )
    refused = broker.ask(in_transaction, plain.version, session)
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code in _codes(refused)


def test_what_is_refused_is_logged_and_what_is_allowed_only_if_asked_for(
    broker: AuthorizingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    call = LABELS["list_offsets"]
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        broker.allow()
        broker.errors(call)
        (refused,) = caplog.messages
        broker.allow(topic(AclOperation.READ))
        broker.errors(call)
        assert caplog.messages == [refused]
    assert refused == (
        "Principal = User:ANONYMOUS is Denied operation = DESCRIBE from host = 10.0.0.7 on "
        "resource = Topic:LITERAL:t for request = ListOffsets with resourceRefCount = 1 based on "
        "rule DefaultDeny"
    )
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        broker.errors(call)
    assert caplog.messages == [
        "Principal = User:ANONYMOUS is Allowed operation = DESCRIBE from host = 10.0.0.7 on "
        "resource = Topic:LITERAL:t for request = ListOffsets with resourceRefCount = 1 based on "
        "rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, "
        "patternType=LITERAL, principal=User:ANONYMOUS, host=*, operation=READ, "
        "permissionType=ALLOW))"
    ]


def test_a_line_break_in_a_name_does_not_begin_a_line_of_the_log(
    broker: AuthorizingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.allow()
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        broker.ask(DescribeGroupsRequest(groups=["g\nPrincipal = User:admin is Allowed"]), 5)
    (line,) = caplog.messages
    assert "\n" not in line


def test_what_the_broker_asks_itself_is_not_refused(broker: AuthorizingBroker) -> None:
    broker.allow()
    call = LABELS["add_partitions_to_txn-of-a-broker"]
    reply = broker.services.send_request(
        broker.services.node.broker_id, call.request(broker.topic_id), 1000
    )
    assert not set(_codes(broker.wait(reply))) & NOT_ALLOWED


def test_a_token_for_somebody_else_needs_a_rule_on_that_user(broker: AuthorizingBroker) -> None:
    def create(operation: AclOperation | None) -> int:
        rules = [] if operation is None else [rule(operation, AclResource.USER, "User:ben")]
        broker.set_acls(*(replace(each, principal="User:ann") for each in rules))
        request = CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="ben",
            renewers=[],
            max_lifetime_ms=-1,
        )
        session = cast(DispatchSession, broker.connect())
        session._connection.authenticated_as(KafkaPrincipal("User", "ann"))
        answer = broker.ask(request, 3, session)
        return cast(CreateDelegationTokenResponse, answer).error_code

    refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED.code
    assert create(None) == refused
    assert create(AclOperation.DESCRIBE_TOKENS) == refused
    assert create(AclOperation.CREATE_TOKENS) == 0


def test_an_expression_stands_for_the_topics_that_its_member_may_describe(
    broker: AuthorizingBroker,
) -> None:
    shown, _ = broker.id_of("re-1"), broker.id_of("re-2")
    broker.set_acls(
        rule(AclOperation.READ, AclResource.GROUP, "expressions"),
        rule(AclOperation.DESCRIBE, AclResource.TOPIC, "re-1"),
    )
    epoch, assigned = 0, set[TopicId]()

    def has_an_assignment() -> bool:
        nonlocal epoch, assigned
        request = ConsumerGroupHeartbeatRequest(
            group_id="expressions",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex="re-.*",
            topic_partitions=[],
        )
        answer = cast(ConsumerGroupHeartbeatResponse, broker.ask(request, 1))
        assert not answer.error_code, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = {each.topic_id for each in answer.assignment.topic_partitions}
        return bool(assigned)

    broker.until(has_an_assignment)
    assert assigned == {shown}


def test_who_authenticates_anew_is_decided_about_anew(broker: AuthorizingBroker) -> None:
    broker.allow_everything()
    connection = ConnectionInfo(1, "PLAINTEXT", "h", 1, principal=KafkaPrincipal("User", "ann"))
    decisions_of(broker.services, RequestContext(connection, ApiKey.FETCH, 17, 1, "c"))
    assert connection.decisions is not None
    connection.decisions.readable.add("t")
    connection.decisions.writable.add("t")
    assert connection.readable == connection.writable == {"t"}
    connection.authenticated_as(KafkaPrincipal("User", "ben"))
    assert (connection.decisions, connection.readable, connection.writable) == (None, set(), set())
    again = decisions_of(broker.services, RequestContext(connection, ApiKey.FETCH, 17, 2, "c"))
    assert again.principal == KafkaPrincipal("User", "ben")
    again.readable.add("u")
    assert connection.readable == {"u"}
