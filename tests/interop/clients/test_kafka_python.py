"""kafka-python does its ordinary work."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
    from kafka.errors import KafkaError, TopicAlreadyExistsError

from tests.broker_process import BrokerProcess
from tests.interop.clients.patience import ASK_AGAIN_MS, JOIN_MS

TIMEOUT_S = 60.0

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


@pytest.fixture
def topic(admin: KafkaAdminClient, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    return name


def consumer_of(broker: BrokerProcess, **settings: object) -> closing[KafkaConsumer]:
    defaults = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "metadata_max_age_ms": ASK_AGAIN_MS,
    }
    return closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **defaults | settings))


def read(consumer: KafkaConsumer, count: int) -> list[kafka.consumer.fetcher.ConsumerRecord]:
    records: list[kafka.consumer.fetcher.ConsumerRecord] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for some in consumer.poll(JOIN_MS, max_records=count - len(records)).values():
            records += some
    return records


def write(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)) as producer:
        sent = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(TIMEOUT_S)
        for future in sent:
            future.get(TIMEOUT_S)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_codecs(broker: BrokerProcess, topic: str, codec: str | None) -> None:
    values = [b"%d " % number * 50 for number in range(300)]
    write(broker, topic, values, compression_type=codec, linger_ms=20)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read(consumer, 300)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: BrokerProcess, topic: str, acks: object) -> None:
    write(broker, topic, [b"a", b"b"], acks=acks, enable_idempotence=acks == "all")
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read(consumer, 2)] == [b"a", b"b"]


def test_keys_headers_nulls_and_timestamps(broker: BrokerProcess, topic: str) -> None:
    headers = [("a", b"1"), ("a", b""), ("ü", b"\xff")]
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        producer.send(topic, b"v", b"k", headers, partition=1, timestamp_ms=1234)
        producer.send(topic, None, b"tombstone", partition=1, timestamp_ms=5678).get(TIMEOUT_S)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        first, second = read(consumer, 2)
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
    assert (first.timestamp, first.offset) == (1234, 0)
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    values = [b"%d" % number for number in range(3_000)]
    write(broker, topic, values, enable_idempotence=True, linger_ms=1, batch_size=500)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read(consumer, 3_000)] == values


def test_a_group_commits_and_goes_on(broker: BrokerProcess, topic: str) -> None:
    group = f"group-{topic}"
    write(broker, topic, [b"%d" % number for number in range(10)])
    place = TopicPartition(topic, 0)
    with consumer_of(broker, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert [record.value for record in read(consumer, 4)] == [b"0", b"1", b"2", b"3"]
        assert consumer.assignment() == {place, TopicPartition(topic, 1)}
        consumer.commit()
    with consumer_of(broker, group_id=group) as consumer:
        assert consumer.committed(place) == 4
        consumer.subscribe([topic])
        assert read(consumer, 6)[0].value == b"4"


def test_two_members_share_the_partitions(broker: BrokerProcess, topic: str) -> None:
    settings = {"group_id": f"two-{topic}", "heartbeat_interval_ms": 200}
    with consumer_of(broker, **settings) as one, consumer_of(broker, **settings) as two:
        deadline = time.monotonic() + TIMEOUT_S
        one.subscribe([topic])
        while len(one.assignment()) < 2:
            assert time.monotonic() < deadline
            one.poll(JOIN_MS)
        two.subscribe([topic])
        while not (len(one.assignment()) == len(two.assignment()) == 1):
            assert time.monotonic() < deadline
            one.poll(100)
            two.poll(100)
        assert one.assignment().isdisjoint(two.assignment())


def test_looking_up_offsets_by_time_and_seeking(broker: BrokerProcess, topic: str) -> None:
    place = TopicPartition(topic, 0)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1000 + 10 * number)
        producer.flush(TIMEOUT_S)
    with consumer_of(broker) as consumer:
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 10}
        assert consumer.offsets_for_times({place: 1045})[place].offset == 5
        assert consumer.offsets_for_times({place: 2000})[place] is None
        consumer.assign([place])
        consumer.seek(place, 8)
        assert [record.value for record in read(consumer, 2)] == [b"8", b"9"]
        consumer.seek_to_beginning(place)
        assert read(consumer, 1)[0].value == b"0"
        assert consumer.partitions_for_topic(topic) == {0, 1}


def test_admin_of_topics(admin: KafkaAdminClient, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    config = {"retention.ms": "86400000"}
    admin.create_topics({name: {"num_partitions": 3, "configs": config}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({name: {"num_partitions": 3}})
    admin.create_partitions({name: 5})
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 5
    assert name in admin.list_topics()
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_admin_of_settings(admin: KafkaAdminClient, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "2000000"})
    admin.alter_configs([resource])
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": None})
    assert "2000000" in str(admin.describe_configs([asked]))


def test_admin_of_records_and_groups(
    broker: BrokerProcess, admin: KafkaAdminClient, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    write(broker, topic, [b"%d" % number for number in range(10)])
    admin.delete_records({place: 4})
    found = admin.list_partition_offsets({place: OffsetSpec.EARLIEST})
    assert found[place].offset == 4
    group = f"admin-{topic}"
    with consumer_of(broker, group_id=group) as consumer:
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(7, "note", -1)})
    assert admin.list_group_offsets({group: None})[group][place].offset == 7
    assert group in str(admin.list_groups())
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())


def test_an_error_of_the_broker_reaches_the_caller(broker: BrokerProcess, topic: str) -> None:
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=5_000_000)
    ) as producer:
        future = producer.send(topic, bytes(2_000_000), partition=0)
        with pytest.raises(KafkaError, match=r"(?i)message"):
            future.get(TIMEOUT_S)
