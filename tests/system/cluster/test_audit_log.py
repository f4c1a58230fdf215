"""The audit log of three brokers: in one topic, through the death of the leader that takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tests.broker_process import BrokerProcess
from tests.system.cluster_site import ClusterSite
from tests.system.test_audit_log import PlainWire
from tests.unit.security.audit.audit_events import check
from tests.waiting import wait_until

from millstream.model.acl import AclOperation, AclResource, PatternType, Permission
from millstream.model.errors import ErrorCode
from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)

pytestmark = pytest.mark.system

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="between-hunter2" '
    'user_broker="between-hunter2" user_admin="admin-hunter2" user_eve="eves-hunter2";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "standard",
    "super.users": "User:broker;User:admin",
    "audit.log.management.allowed": "topic",
    "audit.log.management.denied": "topic",
    "audit.log.interbroker.allowed": "topic",
    "audit.log.interbroker.denied": "topic",
    "audit.log.excluded.principals": "User:broker",
    "audit.log.topic.num.partitions": "3",
}
ROUNDS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterSite]:
    with ClusterSite(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def options(*brokers: BrokerProcess, name: str = "admin") -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.bootstrap for each in brokers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}{'s' if name == 'eve' else ''}-hunter2",
        "log_level": 0,
    }


def leader_of(admin: AdminClient, partition: int) -> int:
    topics = admin.list_topics(AUDIT_LOG_TOPIC, timeout=10).topics
    return int(topics[AUDIT_LOG_TOPIC].partitions[partition].leader)


def records(*brokers: BrokerProcess) -> list[tuple[int, dict[str, Any]]]:
    """Return what the topic holds now, each record once, with its partition."""
    consumer = Consumer({**options(*brokers), "group.id": "none", "enable.auto.commit": False})
    try:
        found: dict[str, tuple[int, dict[str, Any]]] = {}
        partitions = [TopicPartition(AUDIT_LOG_TOPIC, index, 0) for index in range(3)]
        ends = {
            each.partition: consumer.get_watermark_offsets(each, timeout=10)[1]
            for each in partitions
        }
        consumer.assign(partitions)
        left = sum(ends.values())
        while left > 0:
            message = consumer.poll(10)
            if message is None or message.error() is not None:
                break
            left -= 1
            record = json.loads(message.value())
            found[record["id"]] = message.partition(), record
    except KafkaException:  # the topic, or a leader, is not there yet
        return []
    else:
        return list(found.values())
    finally:
        consumer.close()


def retention(admin: AdminClient, value: int) -> None:
    entry = ConfigEntry("retention.ms", str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("TOPIC", "t", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource], request_timeout=30).values():
        future.result(60)


def method(record: dict[str, Any]) -> str:
    data = record["data"]
    return str(data.get("methodName", "left-out")).removeprefix("kafka.")


def changed(found: list[tuple[int, dict[str, Any]]]) -> set[int]:
    """Return the values that were set by requests that the log has."""
    return {
        int(config["value"])
        for _, each in found
        if method(each) == "IncrementalAlterConfigs"
        for config in each["data"]["request"]["data"]["resources"][0]["configs"]
    }


def test_the_log_goes_on_where_its_leader_dies(cluster: ClusterSite) -> None:
    brokers = dict(cluster.brokers.items())
    admin = AdminClient(options(*brokers.values()))
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(60)
    wait_until(lambda: len(records(*brokers.values())) > 0, "the first record in the topic")
    ((partition, created),) = [
        each for each in records(*brokers.values()) if method(each[1]) == "CreateTopics"
    ]
    check(created)
    assert created["data"]["result"] == {"status": "SUCCESS"}

    leader = leader_of(admin, partition)
    others = [each for number, each in brokers.items() if number != leader]
    # Each of these is asked of the controller, and written to a leader that dies in between.
    is_controller = admin.list_topics(timeout=10).controller_id == leader
    asked = AdminClient(options(*others))
    done = set()
    for number in range(ROUNDS):
        if number == ROUNDS // 3:
            if is_controller:  # what it has not written when it is killed is lost
                wait_until(lambda: done <= changed(records(*brokers.values())), "what it recorded")
            brokers[leader].kill()
        retention(asked, 1_000_000 + number)
        done.add(1_000_000 + number)
    wait_until(lambda: done <= changed(records(*others)), "every change in the log")
    assert leader_of(asked, partition) != leader
    brokers[leader].start()
    found = [each for _, each in records(*others)]
    for each in found:
        check(each)
    assert not [each for each in found if method(each) in ("WriteAuditLog", "left-out")]
    people = {each["data"]["authenticationInfo"]["principal"] for each in found}
    assert people == {"User:admin"}, "brokers are excluded"
    places = {place for place, each in records(*others)}
    assert places == {partition}, "what one principal did is in one partition"


def test_a_request_that_is_handed_on_is_recorded_once(cluster: ClusterSite) -> None:
    brokers = list(cluster.brokers.values())
    rule = AclCreation(
        resource_type=AclResource.TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:eve",
        host="*",
        operation=AclOperation.READ,
        permission_type=Permission.ALLOW,
    )
    for each in brokers:
        for name, error in (
            ("admin", ErrorCode.NONE),
            ("eve", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ):
            with PlainWire(each) as wire:
                wire.authenticate(name, options(each, name=name)["sasl.password"])
                request = CreateAclsRequest(creations=[rule])
                answer = wire.wire.call(request, 3, CreateAclsResponse)
                assert answer.results[0].error_code == error.code

    def rules() -> list[dict[str, Any]]:
        found = [each["data"] for _, each in records(*brokers)]
        return [each for each in found if each["methodName"] == "kafka.CreateAcls"]

    wait_until(lambda: len(rules()) >= 6, "all of them")
    found = rules()
    assert sorted(each["outcome"] for each in found) == ["allowed"] * 3 + ["denied"] * 3
    for each in found:
        assert each["requestMetadata"]["clientPort"] > 0
        assert "forwardedBy" not in each["authenticationInfo"]
        assert each["request"]["data"]["creations"][0]["principal"] == "User:eve"
    sources = {each["source"] for _, each in records(*brokers)}
    assert len(sources) == 3, "each broker records its own clients"
