"""Every API × what it touches is in the audit log: denied with its error, allowed with its rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.handlers.access_calls import CALLS, CREATE, Call, Need, topic
from tests.unit.handlers.test_access import LABELS, AuthorizingBroker, rule
from tests.unit.security.audit.audit_events import check

from millstream.handlers.audited import audited
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.acl import CLUSTER_NAME, AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConnectionClosedError, ErrorCode, KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.net.peer import Peer
from millstream.protocol.api import APIS, ApiKey
from millstream.protocol.messages.create_acls import CreateAclsRequest
from millstream.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.messages.produce import ProduceRequest, ProduceResponse
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from millstream.security.audit.kinds import BASE_KINDS, CLASSES, EventKind, kind_of
from millstream.security.audit.machine import Entry

EVERYTHING = {f"audit.log.{kind.value}.{outcome.value}": "file" for kind, outcome in CLASSES}
SETTINGS = {
    **EVERYTHING,
    "audit.log.repeat.interval.ms": "0",
    "audit.log.max.events.per.second": "1000000",
    "audit.log.burst.events": "1000000",
}


class AuditedBroker(AuthorizingBroker):
    """A broker whose records of the audit log are kept instead of written."""

    def __init__(self, directory: Path, **more: str) -> None:
        self._entries: list[Entry] = []
        settings = {**SETTINGS, "audit.log.file.path": str(directory / "audit.log")}
        super().__init__(directory, settings | {k.replace("_", "."): v for k, v in more.items()})

    def prepare(self) -> None:
        super().prepare()
        audit = self.services.audit
        if audit is not None:
            audit._machine._emit = self._keep
        self._entries.clear()

    def _keep(self, entry: Entry) -> bool:
        self._entries.append(entry)
        return True

    def records(self, *, of: ApiKey | None = None) -> list[dict[str, Any]]:
        """Return the data of what was recorded since the last time, of one API."""
        found = [json.loads(each.value) for each in self._entries]
        self._entries.clear()
        for each in found:
            check(each)
        return [
            each["data"]
            for each in found
            if of is None or each["data"]["methodName"] == f"kafka.{APIS[of].name}"
        ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedBroker]:
    made = AuditedBroker(tmp_path_factory.mktemp("audited"))
    yield made
    made.stop()


@pytest.fixture
def broker(running: AuditedBroker) -> AuditedBroker:
    running.prepare()
    return running


EITHER = {
    "create_topics-on-the-cluster",
    "init_producer_id-idempotent",
    "init_producer_id-to-any-topic",
    "offset_for_leader_epoch-of-a-follower",
    "write_txn_markers-to-abort",
}
"""Calls that another rule would allow too: what was asked last is what is denied."""

calls = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.label)


def of(need: Need) -> tuple[str, str, str]:
    """Return how a record says what was needed."""
    return (
        need.operation.name.title().replace("_", ""),
        need.resource.name.title().replace("_", ""),
        need.name,
    )


def asked(record: dict[str, Any]) -> tuple[str, str, str]:
    info = record["authorizationInfo"]
    return info["operation"], info["resourceType"], info["resourceName"]


@calls
def test_what_is_denied_is_recorded_with_its_error(broker: AuditedBroker, call: Call) -> None:
    broker.allow()
    broker.records()
    broker.errors(call)
    denied = [each for each in broker.records(of=call.key) if each["outcome"] == "denied"]
    need = call.needs[0]
    assert denied, "nothing was recorded"
    if call.label not in EITHER:
        assert of(need) in map(asked, denied)
    for each in denied:
        assert each["authorizationInfo"]["granted"] is False
        assert each["authorizationInfo"]["decidedBy"] == "defaultDeny"
        assert each["authenticationInfo"] == {"principal": "User:ANONYMOUS"}
        assert each["request"]["clientId"] == "tester"
        assert each["request"]["correlationId"] == 7
        assert each["request"]["apiVersion"] == call.version
        assert each["requestMetadata"] == {
            "clientAddress": "10.0.0.7",
            "clientPort": 4242,
            "listener": "PLAINTEXT",
            "securityProtocol": "PLAINTEXT",
        }
        assert each["result"]["status"] in ("FAILURE", "PARTIAL")
    errors = {each["result"].get("error") for each in denied} | {
        error["error"] for each in denied for error in each["result"].get("errors", ())
    }
    assert need.error.name in errors


@calls
def test_what_is_allowed_is_recorded_with_its_rule(broker: AuditedBroker, call: Call) -> None:
    broker.allow(*call.needs)
    broker.records()
    broker.errors(call)
    records = broker.records(of=call.key)
    allowed = {asked(each): each for each in records if each["outcome"] == "allowed"}
    for need in call.needs:
        record = allowed.get(of(need))
        if record is None:  # another operation was asked about first, which this rule implies
            continue
        assert record["kind"] == kind_of(call.key, need.operation).value
        assert record["authorizationInfo"]["decidedBy"] == "acl"
        rule = record["authorizationInfo"]["aclAuthorization"]
        assert (rule["permissionType"], rule["principal"], rule["resourceName"]) == (
            "ALLOW",
            "User:ANONYMOUS",
            need.name,
        )
        if record["kind"] == "management":
            assert "result" in record
            assert "data" in record["request"]
    assert allowed, "nothing was recorded"


@pytest.mark.parametrize("label", ["produce-by-name", "fetch-by-id"])
def test_decisions_that_are_kept_are_recorded_each(broker: AuditedBroker, label: str) -> None:
    call = (
        LABELS[label]
        if label in LABELS
        else next(each for each in CALLS if each.label.startswith(label.partition("-")[0]))
    )
    broker.allow(*call.needs)
    session = broker.connect()
    broker.records()
    for _ in range(3):
        broker.ask(call.request(broker.topic_id), call.version, session)
    kind = BASE_KINDS[call.key].value
    found = [each for each in broker.records(of=call.key) if each["kind"] == kind]
    assert len(found) == 3 * len({of(need) for need in call.needs})


def test_a_producer_id_that_is_denied_is_one_record(broker: AuditedBroker) -> None:
    broker.allow()
    broker.records()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=5)
    broker.ask(request, 4)
    (record,) = broker.records(of=ApiKey.INIT_PRODUCER_ID)
    assert asked(record) == ("Write", "Topic", "*")
    assert record["result"] == {"status": "FAILURE", "error": "CLUSTER_AUTHORIZATION_FAILED"}


def test_what_is_only_hidden_is_not_denied(broker: AuditedBroker) -> None:
    broker.allow()
    broker.records()
    broker.ask(MetadataRequest(topics=None), 9)
    assert broker.records(of=ApiKey.METADATA) == []


def new_topics(*names: str) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=5_000)


def test_a_request_about_several_topics_says_which_was_denied_and_which_failed(
    broker: AuditedBroker,
) -> None:
    need = topic(CREATE)
    broker.allow(need, Need(CREATE, need.resource, "fresh", need.error))
    broker.records()
    broker.ask(new_topics("t", "fresh", "secret"), 5)
    found = {
        each["authorizationInfo"]["resourceName"]: each
        for each in broker.records(of=ApiKey.CREATE_TOPICS)
        if each["kind"] == "management"
    }
    assert {name: each["outcome"] for name, each in found.items()} == {
        "t": "allowed",
        "fresh": "allowed",
        "secret": "denied",
    }
    assert {name: each["result"] for name, each in found.items()} == {
        "t": {"status": "FAILURE", "error": "TOPIC_ALREADY_EXISTS"},
        "fresh": {"status": "SUCCESS"},
        "secret": {"status": "FAILURE", "error": "TOPIC_AUTHORIZATION_FAILED"},
    }
    assert [each["name"] for each in found["fresh"]["request"]["data"]["topics"]] == ["fresh"]


def test_an_unanswered_produce_that_is_denied_is_recorded(broker: AuditedBroker) -> None:
    call = next(each for each in CALLS if each.key is ApiKey.PRODUCE)
    broker.allow()
    broker.records()
    request = call.request(broker.topic_id)
    assert isinstance(request, ProduceRequest)
    request.acks = 0
    with pytest.raises(ConnectionClosedError):
        broker.ask(request, call.version)
    (record,) = [each for each in broker.records() if each["outcome"] == "denied"]
    assert record["result"] == {"status": "FAILURE", "error": "TOPIC_AUTHORIZATION_FAILED"}


def test_a_token_that_its_owner_may_have_is_recorded(broker: AuditedBroker) -> None:
    """No rule is asked about: whoever authenticated may."""
    peer = Peer(9, "PLAINTEXT", "10.0.0.7", 4242, principal=KafkaPrincipal("User", "ann"))
    session = broker._broker.open_session(peer)
    broker.records()
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    created = broker.ask(request, 3, session)
    (record,) = broker.records(of=ApiKey.CREATE_DELEGATION_TOKEN)
    assert record["authorizationInfo"] == {
        "granted": True,
        "resourceType": "DelegationToken",
        "resourceName": created.token_id,  # type: ignore[attr-defined]
        "patternType": "LITERAL",
        "decidedBy": "notAsked",
    }
    assert record["result"] == {"status": "SUCCESS"}
    hmac = created.hmac  # type: ignore[attr-defined]
    broker.ask(RenewDelegationTokenRequest(hmac=b"wrong", renew_period_ms=5), 2, session)
    (renewed,) = broker.records(of=ApiKey.RENEW_DELEGATION_TOKEN)
    assert renewed["result"] == {"status": "FAILURE", "error": "DELEGATION_TOKEN_NOT_FOUND"}
    assert hmac.hex() not in json.dumps([record, renewed])
    anonymous = broker.ask(request, 3)
    assert anonymous.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code  # type: ignore[attr-defined]
    (denied,) = broker.records(of=ApiKey.CREATE_DELEGATION_TOKEN)
    assert denied["outcome"] == "denied"


def test_a_broker_without_an_authorizer_records_what_it_allows(tmp_path: Path) -> None:
    broker = AuditedBroker(tmp_path, authorizer_class_name="")
    try:
        broker.prepare()
        broker.ask(new_topics("fresh"), 5)
        (record,) = [
            each
            for each in broker.records(of=ApiKey.CREATE_TOPICS)
            if each["kind"] == EventKind.MANAGEMENT.value
        ]
        assert record["authorizationInfo"]["decidedBy"] == "noAuthorizer"
        assert record["authorizationInfo"]["granted"] is True
        assert record["result"] == {"status": "SUCCESS"}
        for call in CALLS:
            if call.key in (ApiKey.PRODUCE, ApiKey.FETCH):
                answer = broker.ask(call.request(broker.topic_id), call.version)
                if isinstance(answer, ProduceResponse):
                    assert answer.responses[0].partition_responses[0].error_code in (0, 48)
                found = broker.records(of=call.key)
                assert found
                assert {each["outcome"] for each in found} == {"allowed"}
                assert {each["authorizationInfo"]["decidedBy"] for each in found} == {
                    "noAuthorizer"
                }
        assert broker.services.authorizer is None
    finally:
        broker.stop()


def test_what_is_counted_keeps_no_more_of_a_name_than_what_is_recorded(tmp_path: Path) -> None:
    """Clients choose names, and what is counted stays for the interval: twenty thousand of them."""
    broker = AuditedBroker(tmp_path, authorizer_class_name="", audit_log_repeat_interval_ms="60000")
    try:
        broker.prepare()
        name = "n" * 30_000
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        for _ in range(2):
            broker.ask(asked, 9)
        recorded = [each["authorizationInfo"] for each in broker.records(of=ApiKey.METADATA)]
        assert name[:512] + "..." in [each["resourceName"] for each in recorded]
        assert broker.services.audit is not None
        counted = broker.services.audit._machine._repeats._by_key
        assert 1 in [each.count for each in counted.values()]
        assert max(len(str(key)) for key in counted) < 2_000
        assert max(len(str(each.event)) for each in counted.values()) < 3_000
    finally:
        broker.stop()


def test_of_what_a_broker_hands_on_only_denials_are_recorded(broker: AuditedBroker) -> None:
    """The broker that the client talks to records what was allowed, with its result."""
    services = broker.services
    assert services.audit is not None
    route = ROUTES[ApiKey.CREATE_ACLS]
    handle = audited(
        services.audit, services, route, route.handle_of(services), forwarded_by="User:broker"
    )
    client = ConnectionInfo(1, "PLAINTEXT", "10.0.0.9", 0, principal=KafkaPrincipal("User", "eve"))
    context = RequestContext(client, ApiKey.CREATE_ACLS, 3, 11, "eves")
    request = CreateAclsRequest(creations=[])
    broker.allow()
    broker.records()
    with pytest.raises(KafkaError):
        handle(services, context, request)
    (record,) = broker.records(of=ApiKey.CREATE_ACLS)
    assert record["outcome"] == "denied"
    assert record["authenticationInfo"] == {
        "principal": "User:eve",
        "forwardedBy": "User:broker",
    }
    assert record["requestMetadata"]["clientPort"] == 0
    broker.set_acls(
        replace(rule(AclOperation.ALTER, AclResource.CLUSTER, CLUSTER_NAME), principal="User:eve")
    )
    reply = handle(services, context, request)
    assert isinstance(reply, Deferred)
    assert reply.done
    assert broker.records(of=ApiKey.CREATE_ACLS) == []


def test_of_what_a_broker_hands_on_a_denial_that_no_rule_made_is_recorded(
    broker: AuditedBroker,
) -> None:
    services = broker.services
    assert services.audit is not None
    route = ROUTES[ApiKey.CREATE_DELEGATION_TOKEN]
    handle = audited(
        services.audit, services, route, route.handle_of(services), forwarded_by="User:broker"
    )
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)

    def ask(who: KafkaPrincipal) -> list[dict[str, Any]]:
        client = ConnectionInfo(1, "PLAINTEXT", "10.0.0.9", 0, principal=who)
        context = RequestContext(client, ApiKey.CREATE_DELEGATION_TOKEN, 3, 11, "eves")
        broker.records()
        reply = handle(services, context, request)
        later = reply if isinstance(reply, Deferred) else spawn(reply)  # type: ignore[arg-type]
        with suppress(KafkaError):
            broker.wait(later)
        return broker.records(of=ApiKey.CREATE_DELEGATION_TOKEN)

    (record,) = ask(KafkaPrincipal("User", "eve", token_authenticated=True))
    assert (record["outcome"], record["authenticationInfo"]["forwardedBy"]) == (
        "denied",
        "User:broker",
    )
    assert ask(KafkaPrincipal("User", "eve")) == []  # her own broker records that
