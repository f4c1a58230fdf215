"""Our administrator against Apache Kafka itself, with what Millstream does not serve yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node
from tests.waiting import wait_until

from millstream.client import Admin, Producer
from millstream.client.core.admin.access import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
)
from millstream.client.core.admin.configs import Change, Operation, Resource, ResourceType
from millstream.client.core.admin.groups import Committed
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), settings)
    node.start()
    yield node
    node.stop()


@pytest.fixture
def admin(kafka: KafkaNode) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka.bootstrap) as made:
        yield made


def test_topics_settings_and_offsets(
    kafka: KafkaNode, admin: Admin, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    created = admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "1000"}), NewTopic("a/b")])
    assert created[name].get().partitions == 2
    assert created.errors["a/b"].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    resource = Resource(ResourceType.TOPIC, name)
    changes = [Change("cleanup.policy", "compact", Operation.APPEND)]
    assert not admin.incremental_alter_configs({resource: changes}).errors

    def policy() -> str | None:
        settings = admin.describe_configs([resource])[resource].get()
        return next(each.value for each in settings if each.name == "cleanup.policy")

    # A KRaft broker answers from what it has heard of its controller by then.
    wait_until(lambda: policy() == "delete,compact", "the changed setting")
    place = TopicPartition(name, 0)
    with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(5):
            producer.send(name, b"v", b"%d" % number, partition=0)
    found = admin.list_offsets({place: LATEST})[place].get()
    assert found is not None
    assert found.offset == 5
    assert admin.describe_producers([place])[place].get()[0].last_sequence == 4
    assert not admin.alter_group_offsets("g", {place: 3}).errors
    assert admin.list_group_offsets(["g"])["g"].get() == {place: Committed(3)}
    assert admin.describe_groups(["g"])["g"].get().state == "Empty"
    assert not admin.create_partitions({name: 4}).errors
    assert name in admin.list_topics()
    assert not admin.delete_groups(["g"]).errors
    assert not admin.delete_topics([name]).errors


def test_the_cluster(admin: Admin) -> None:
    described = admin.describe_cluster()
    quorum = admin.describe_quorum()
    assert quorum.leader_id in [each.replica_id for each in quorum.voters]
    features = admin.describe_features()
    assert features.finalized["metadata.version"].last > 0
    assert admin.update_features({"no.such.feature": 1}).errors
    directories = admin.describe_log_dirs().get_all()
    assert set(directories) == {each.broker_id for each in described.brokers}
    assert admin.list_partition_reassignments() == {}
    assert admin.list_transactions() == []
    missing = admin.describe_transactions(["none"])["none"].error
    assert missing is not None
    assert missing.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_elections_and_moves(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    admin.create_topics([NewTopic(name, 1, 1)]).get_all()
    place = TopicPartition(name, 0)
    broker_id = admin.describe_cluster().brokers[0].broker_id
    elected = admin.elect_leaders([place, TopicPartition("none", 0)])
    assert elected.errors[place].error is ErrorCode.ELECTION_NOT_NEEDED
    assert elected.errors[TopicPartition("none", 0)].error is (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not admin.alter_partition_reassignments({place: [broker_id]}).errors
    cancelled = admin.alter_partition_reassignments({place: None})
    assert cancelled.errors[place].error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    moved = admin.alter_replica_log_dirs({(place, broker_id): "/no/such/directory"})
    assert moved.errors[place, broker_id].error is ErrorCode.LOG_DIR_NOT_FOUND


def test_rules(admin: Admin) -> None:
    acl = Acl(
        resource=AclResource.TOPIC, name="t", principal="User:ann", operation=AclOperation.READ
    )
    wrong = Acl(resource=AclResource.TOPIC, name="t", principal="ann", operation=AclOperation.READ)
    outcomes = admin.create_acls([acl, wrong])
    assert outcomes[acl].error is None
    assert outcomes[wrong].error is not None
    assert admin.describe_acls(AclFilter(principal="User:ann")) == [acl]
    deleted = admin.delete_acls([AclFilter(name="t"), AclFilter(name="none")])
    assert [each.get() for each in deleted.values()] == [[acl], []]
    assert admin.describe_acls(AclFilter()) == []


def test_quotas(admin: Admin) -> None:
    ann = QuotaEntity((("user", "ann"),))
    everybody = QuotaEntity((("user", None),))
    assert not admin.alter_client_quotas(
        {ann: {"producer_byte_rate": 1e6}, everybody: {"consumer_byte_rate": 2e6}}
    ).errors
    assert admin.describe_client_quotas({"user": "ann"}) == {ann: {"producer_byte_rate": 1e6}}
    assert set(admin.describe_client_quotas({"user": "*"})) == {ann, everybody}
    assert set(admin.describe_client_quotas({"user": None})) == {everybody}
    assert admin.alter_client_quotas({ann: {"no_such_quota": 1}}).errors
    assert not admin.alter_client_quotas({ann: {"producer_byte_rate": None}}).errors
    assert admin.describe_client_quotas({"user": "ann"}) == {}


def test_credentials(admin: Admin) -> None:
    assert not admin.alter_user_scram_credentials({"ann": "secret"}, iterations=4096).errors
    found = admin.describe_user_scram_credentials()["ann"].get()
    assert found == [ScramCredential(ScramMechanism.SCRAM_SHA_512, 4096)]
    assert not admin.alter_user_scram_credentials({"ann": None}).errors
    assert admin.alter_user_scram_credentials({"bob": None}).errors
    missing = admin.describe_user_scram_credentials(["ann"])["ann"].error
    assert missing is not None
    assert missing.error is ErrorCode.RESOURCE_NOT_FOUND
