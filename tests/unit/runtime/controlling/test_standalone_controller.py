"""The controller over a real embedded store: decisions, what the broker hears, restarts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.controller import paths, topic_changes
from millstream.controller.adoption import Adoption, FoundLog
from millstream.controller.config_changes import (
    ConfigChange,
    ConfigOperation,
    OperationType,
    ResourceType,
    apply_operations,
)
from millstream.controller.topic_changes import NewPartitions, NewTopic
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import Done, NoNodeError, Operation, SetData
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.standalone_controller import (
    FoundEntities,
    StandaloneController,
)
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.offload import InlineOffload
from millstream.sqlite.metadata_store import SqliteMetadataStore

T = TypeVar("T")

NODE = BrokerNode(BrokerId(1), (Endpoint("PLAINTEXT", "localhost", 9092),))


class StillClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> float:
        return 0.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        raise NotImplementedError

    def call_soon(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError


def counting_bytes() -> Callable[[int], bytes]:
    """Random bytes of a kind: every call gives others."""
    counter = itertools.count(1)
    return lambda size: next(counter).to_bytes(size, "little")


@dataclass
class Told:
    """A broker that writes down what it is told."""

    changed: list[tuple[TopicImage, bool]] = field(default_factory=list)
    deleted: list[TopicImage] = field(default_factory=list)
    reconfigured: list[TopicImage] = field(default_factory=list)

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        self.changed.append((image, created))

    def topic_deleted(self, image: TopicImage) -> None:
        self.deleted.append(image)

    def config_changed(self, image: TopicImage) -> None:
        self.reconfigured.append(image)


class FailingStore(SqliteMetadataStore):
    """Says once what it is told to, instead of writing."""

    failure: Exception | None = None

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        if self.failure is None:
            return super().multi(operations)
        outcome: Deferred[tuple[Done, ...]] = Deferred()
        outcome.fail(self.failure)
        self.failure = None
        return outcome


class Broker:
    """One run of a broker's controller over the store in a directory."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        found: dict[TopicPartition, FoundLog] | None = None,
        clean: bool = True,
        cluster_id: str | None = None,
        group_configs: dict[str, dict[str, str]] | None = None,
        entities: FoundEntities | None = None,
    ) -> None:
        self.store = FailingStore(InlineOffload(), directory)
        self.metadata = MetadataCache("")
        self.config = DynamicConfig(BrokerConfig(settings))
        self.told = Told()
        self.failures: list[StorageError] = []
        standalone = StandaloneController(
            ControllerState(self.config, counting_bytes()),
            self.store,
            StillClock(),
            BrokerMetadata(NODE.broker_id, self.metadata, self.config, listener=self.told),
            on_store_failed=self.failures.append,
        )
        self.controller = standalone.controller
        standalone.load().result()
        self.adoption = Adoption()
        standalone.start(
            NODE,
            found=found or {},
            clean_shutdown=clean,
            settle=self._settle,
            found_group_configs=lambda: group_configs or {},
            found_entities=lambda: entities or {},
            cluster_id=cluster_id,
        ).result()

    def _settle(self, adoption: Adoption) -> None:
        assert self.told.changed == []  # strays go out of the way before anything is opened
        self.adoption = adoption

    def stop(self) -> None:
        self.store.close().result()

    def create(self, *wanted: NewTopic) -> list[TopicImage]:
        results = self.controller.topics.create_topics(wanted).result()
        return [good(result) for result in results]

    def topic(self, name: str) -> TopicImage:
        image = self.metadata.topic(name)
        assert image is not None
        return image


def good(result: T | KafkaError) -> T:
    assert not isinstance(result, KafkaError), result
    return result


def refused(result: object) -> ErrorCode:
    assert isinstance(result, KafkaError), result
    return result.error


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_new_topic_is_stored_shown_and_opened(broker: Broker) -> None:
    (image,) = broker.create(NewTopic("t", 3, 1, configs={"segment.bytes": "2000000"}))
    assert broker.topic("t") == image
    assert broker.metadata.topic_by_id(image.topic_id) is image
    assert [state.leader for state in image.partitions] == [1, 1, 1]
    assert image.config.segment_bytes == 2_000_000
    assert broker.told.changed == [(image, True)]
    assert broker.store.children("/brokers/topics/t/partitions").result() == ("0", "1", "2")


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    for name in ("zebra", "ant", "bee"):
        first.create(NewTopic(name, 2, 1, configs={"retention.ms": "5"}))
    first.create(NewTopic("plain"))
    first.controller.topics.alter_configs(
        [change(ResourceType.BROKER, "", "message.max.bytes", "9999")]
    )
    before = list(first.metadata.topics())
    first.stop()

    second = Broker(tmp_path)
    assert list(map(summary, second.metadata.topics())) == list(map(summary, before))
    assert second.metadata.cluster_id == first.metadata.cluster_id
    assert second.config.current.message_max_bytes == 9999
    assert [image.name for image, created in second.told.changed if not created] == [
        "zebra",
        "ant",
        "bee",
        "plain",
    ]
    assert int(second.store.get(paths.CONTROLLER_EPOCH).result().data) == 2
    assert second.create(NewTopic("more"))[0].partitions[0].controller_epoch == 2


def summary(image: TopicImage) -> tuple[object, ...]:
    return (
        image.name,
        image.topic_id,
        [(each.leader, each.leader_epoch, each.isr, each.replicas) for each in image.partitions],
        dict(image.config.overrides),
        image.config.max_message_bytes,
    )


def test_leader_epochs_rise_after_a_crash_and_only_then(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    first.create(NewTopic("t", 2))
    first.stop()
    for clean, expected in ((True, 0), (False, 1), (False, 2), (True, 2)):
        again = Broker(tmp_path, clean=clean)
        assert [each.leader_epoch for each in again.topic("t").partitions] == [expected] * 2
        again.stop()


def test_the_leader_epoch_goes_past_that_of_the_log(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    (image,) = first.create(NewTopic("t", 2))
    first.stop()
    found = {TopicPartition("t", 1): FoundLog(image.topic_id, leader_epoch=7)}
    again = Broker(tmp_path, found=found)
    assert [each.leader_epoch for each in again.topic("t").partitions] == [0, 8]


def test_a_failed_topic_does_not_stop_the_others(broker: Broker) -> None:
    results = broker.controller.topics.create_topics(
        [NewTopic("good"), NewTopic("bad/name"), NewTopic("many", 1, 3), NewTopic("fine", 2)]
    ).result()
    assert good(results[0]).name == "good"
    assert refused(results[1]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(results[2]) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(good(results[3]).partitions) == 2
    assert {image.name for image in broker.metadata.topics()} == {"good", "fine"}


def test_validating_leaves_nothing_behind(broker: Broker) -> None:
    broker.create(NewTopic("t"))
    told = list(broker.told.changed)
    results = broker.controller.topics.create_topics(
        [NewTopic("u", 2)], validate_only=True
    ).result()
    assert len(good(results[0]).partitions) == 2
    grown = broker.controller.topics.create_partitions([NewPartitions("t", 4)], validate_only=True)
    assert len(good(grown.result()[0]).partitions) == 4
    alter = change(ResourceType.TOPIC, "t", "retention.ms", "7")
    assert broker.controller.topics.alter_configs([alter], validate_only=True).result() == [None]
    assert broker.metadata.topic("u") is None
    assert len(broker.topic("t").partitions) == 1
    assert broker.topic("t").config.retention_ms == 604_800_000
    assert broker.told.changed == told


def test_too_many_partitions_in_one_request_are_refused(broker: Broker) -> None:
    for wanted in ([NewTopic("t", 2**31 - 1)], [NewTopic("a", 6000), NewTopic("b", 6000)]):
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            broker.controller.topics.create_topics(wanted).result()
    broker.create(NewTopic("t"))
    grown = broker.controller.topics.create_partitions([NewPartitions("t", 2**31 - 1)])
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        grown.result()


def test_a_deleted_topic_is_gone_and_its_name_is_free(broker: Broker) -> None:
    (old,) = broker.create(NewTopic("t", 2, configs={"retention.ms": "5"}))
    other = TopicId(bytes(16))
    results = broker.controller.topics.delete_topics([old.topic_id, other]).result()
    assert good(results[0]) is old
    assert refused(results[1]) is ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.told.deleted == [old]
    assert broker.metadata.topic("t") is None
    with pytest.raises(NoNodeError):
        broker.store.get("/brokers/topics/t").result()
    (new,) = broker.create(NewTopic("t"))
    assert new.topic_id != old.topic_id
    assert new.config.retention_ms == 604_800_000


def test_more_partitions(broker: Broker) -> None:
    (old,) = broker.create(NewTopic("t", 2))
    results = broker.controller.topics.create_partitions(
        [NewPartitions("t", 5), NewPartitions("absent", 2)]
    ).result()
    image = good(results[0])
    assert refused(results[1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert image.partitions[:2] == old.partitions
    assert len(image.partitions) == 5
    assert broker.told.changed[-1] == (image, False)
    assert broker.topic("t") == image


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(
    broker: Broker, wanted: NewPartitions, code: ErrorCode
) -> None:
    broker.create(NewTopic("t", 2))
    (result,) = broker.controller.topics.create_partitions([wanted]).result()
    assert refused(result) is code
    assert len(broker.topic("t").partitions) == 2


# --- settings ------------------------------------------------------------------------------


def change(
    resource: ResourceType,
    name: str,
    key: str,
    text: str | None,
    operation: OperationType = OperationType.SET,
) -> ConfigChange:
    operations = [ConfigOperation(operation, key, text)]
    return ConfigChange(
        resource, name, lambda texts: apply_operations(texts, operations, TopicConfig.keys)
    )


def test_a_topics_settings_change_and_change_back(broker: Broker) -> None:
    broker.create(NewTopic("t"))
    for text, expected in (("7", 7), ("8", 8), (None, 604_800_000), ("9", 9)):
        operation = OperationType.SET if text else OperationType.DELETE
        alter = change(ResourceType.TOPIC, "t", "retention.ms", text, operation)
        assert broker.controller.topics.alter_configs([alter]).result() == [None]
        assert broker.topic("t").config.retention_ms == expected
        assert broker.told.reconfigured[-1] == broker.topic("t")


def test_a_brokers_settings_reach_the_topics_that_have_none(broker: Broker) -> None:
    broker.create(NewTopic("plain"), NewTopic("own", configs={"max.message.bytes": "5"}))
    alter = change(ResourceType.BROKER, "", "message.max.bytes", "77")
    assert broker.controller.topics.alter_configs([alter]).result() == [None]
    assert broker.topic("plain").config.max_message_bytes == 77
    assert broker.topic("plain").config is broker.config.current.topic_defaults
    assert broker.topic("own").config.max_message_bytes == 5
    nearer = change(ResourceType.BROKER, "1", "message.max.bytes", "88")
    assert broker.controller.topics.alter_configs([nearer]).result() == [None]
    assert broker.topic("plain").config.max_message_bytes == 88
    assert broker.create(NewTopic("new"))[0].config.max_message_bytes == 88


def test_a_brokers_setting_without_effect_on_topics_tells_nobody(broker: Broker) -> None:
    broker.create(NewTopic("t"))
    alter = change(ResourceType.BROKER, "", "max.connections", "77")
    assert broker.controller.topics.alter_configs([alter]).result() == [None]
    assert broker.config.current.max_connections == 77
    assert broker.told.reconfigured == []


@pytest.mark.parametrize(
    ("alter", "code"),
    [
        (change(ResourceType.TOPIC, "t", "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        (change(ResourceType.TOPIC, "t", "no.such", "x"), ErrorCode.INVALID_CONFIG),
        (change(ResourceType.TOPIC, "", "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (change(ResourceType.TOPIC, "a/b", "retention.ms", "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            change(ResourceType.TOPIC, "absent", "retention.ms", "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            change(ResourceType.TOPIC, "t", "retention.ms", "1", OperationType.APPEND),
            ErrorCode.INVALID_CONFIG,
        ),
        (change(ResourceType.BROKER, "", "log.dirs", "/x"), ErrorCode.INVALID_REQUEST),
        (change(ResourceType.BROKER, "", "message.max.bytes", "x"), ErrorCode.INVALID_REQUEST),
        (change(ResourceType.BROKER_LOGGER, "1", "root", "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_cannot_be(broker: Broker, alter: ConfigChange, code: ErrorCode) -> None:
    broker.create(NewTopic("t"))
    good_change = change(ResourceType.TOPIC, "t", "retention.ms", "42")
    results = broker.controller.topics.alter_configs([alter, good_change]).result()
    assert refused(results[0]) is code
    assert results[1] is None
    assert dict(broker.topic("t").config.overrides) == {"retention.ms": "42"}


# --- topics on the way ---------------------------------------------------------------------


def test_a_topic_is_made_when_it_is_needed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"num.partitions": "4"})
    image = broker.controller.topics.ensure_topic("t").result()
    assert len(image.partitions) == 4
    assert broker.controller.topics.ensure_topic("t").result() is image
    with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
        broker.controller.topics.ensure_topic("..").result()


def test_the_offsets_topic_is_compacted_and_has_as_many_replicas_as_there_can_be(
    broker: Broker,
) -> None:
    image = broker.controller.topics.ensure_topic("__consumer_offsets").result()
    assert len(image.partitions) == 50
    assert image.is_internal
    assert image.config.cleanup_policy == ("compact",)
    assert image.config.segment_bytes == 104_857_600


def test_topics_on_the_way_have_a_limit(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {"auto.create.topics.max.count": "2"})
    for name in "ab":
        broker.controller.topics.ensure_topic(name).result()
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        broker.controller.topics.ensure_topic("c").result()
    broker.create(NewTopic("c"))
    assert broker.controller.topics.ensure_topic("__consumer_offsets").result().is_internal


# --- logs that others left -----------------------------------------------------------------


def test_logs_of_somebody_else_are_adopted(tmp_path: Path) -> None:
    topic_id = TopicId(bytes(range(16)))
    found = {
        TopicPartition("theirs", 0): FoundLog(topic_id, 4),
        TopicPartition("theirs", 2): FoundLog(topic_id),
        TopicPartition("old", 0): FoundLog(None, 1),
        TopicPartition("__cluster_metadata", 0): FoundLog(None, 1),
    }
    broker = Broker(tmp_path, found=found, cluster_id="abc")
    theirs = broker.topic("theirs")
    assert theirs.topic_id == topic_id
    assert [each.leader_epoch for each in theirs.partitions] == [5, 0, 0]
    assert broker.topic("old").topic_id not in (topic_id, bytes(16))
    assert broker.metadata.topic("__cluster_metadata") is None
    assert broker.metadata.cluster_id == "abc"
    assert {image.name for image, _ in broker.told.changed} == {"theirs", "old"}
    broker.stop()
    again = Broker(tmp_path)
    assert again.topic("theirs").topic_id == topic_id


def test_logs_that_contradict_the_store_are_put_aside(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    (image,) = first.create(NewTopic("t", 1))
    first.stop()
    stray = TopicPartition("t", 0)
    broker = Broker(
        tmp_path,
        found={
            stray: FoundLog(TopicId(bytes(15) + b"x")),
            TopicPartition("t", 1): FoundLog(image.topic_id, 3),
            TopicPartition("t", 2_000_000_000): FoundLog(image.topic_id),
        },
    )
    assert broker.adoption.strays == [stray, TopicPartition("t", 2_000_000_000)]
    assert [each.leader_epoch for each in broker.topic("t").partitions] == [0, 4]


def test_a_deleted_topic_does_not_come_back(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    (image,) = first.create(NewTopic("t", 1))
    first.controller.topics.delete_topics([image.topic_id]).result()
    first.stop()
    left = TopicPartition("t", 0)
    second = Broker(tmp_path, found={left: FoundLog(image.topic_id)})
    assert second.adoption.deleted == [left]
    assert second.metadata.topic("t") is None
    assert len(second.store.children(paths.DELETED_TOPICS).result()) == 1
    second.stop()
    third = Broker(tmp_path)
    assert third.store.children(paths.DELETED_TOPICS).result() == ()


def test_only_so_many_deletions_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "MAX_REMEMBERED_DELETIONS", 3)
    broker = Broker(tmp_path)
    for name in "abcdef":
        (image,) = broker.create(NewTopic(name))
        broker.controller.topics.delete_topics([image.topic_id]).result()
    remembered = broker.store.tree(paths.DELETED_TOPICS).result()
    names = [json.loads(node.data)["topic"] for node in remembered.values() if node.data]
    assert sorted(names) == ["c", "d", "e", "f"]  # three, and the newest


def test_another_clusters_directories_are_refused(tmp_path: Path) -> None:
    Broker(tmp_path, cluster_id="abc").stop()
    with pytest.raises(KafkaError, match="INCONSISTENT_CLUSTER_ID"):
        Broker(tmp_path, cluster_id="other")


# --- a store that fails --------------------------------------------------------------------


def test_what_cannot_be_written_does_not_happen(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.store.failure = StorageError("/disk", "full")
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        broker.controller.topics.create_topics([NewTopic("t")]).result()
    assert [each.directory for each in broker.failures] == ["/disk"]
    assert broker.metadata.topic("t") is None
    broker.create(NewTopic("t"))


def test_a_controller_that_was_replaced_writes_nothing(broker: Broker) -> None:
    broker.store.multi([SetData(paths.CONTROLLER_EPOCH, b"9")]).result()
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        broker.controller.topics.create_topics([NewTopic("t")]).result()
    assert broker.metadata.topic("t") is None


def test_a_new_store_takes_over_the_settings_of_groups(tmp_path: Path) -> None:
    recorded = {
        "work": {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "7"},
        "odd/name": {"consumer.session.timeout.ms": "1", "streams.num.standby.replicas": "2"},
        "none": {"share.delivery.count.limit": "many"},
    }
    expected = {
        "work": recorded["work"],
        "odd/name": {"consumer.session.timeout.ms": "1"},
    }
    broker = Broker(tmp_path, group_configs=recorded)
    assert broker.metadata.group_configs == expected
    broker.stop()
    broker = Broker(tmp_path, group_configs={"work": {"share.delivery.count.limit": "3"}})
    assert broker.metadata.group_configs == expected, "what was set here since then counts"
    broker.stop()


def test_rules_and_quotas_of_apache_kafka_are_taken_over_once(tmp_path: Path) -> None:
    recorded: FoundEntities = {
        EntityKind.ACL: {"Topic/literal/t": {"Allow Read * User:ann": ""}},
        EntityKind.USER_CLIENT: {"ann/clients/c": {"producer_byte_rate": "1"}},
    }
    broker = Broker(tmp_path, entities=recorded)
    for kind, values in recorded.items():
        assert broker.metadata.entities.all(kind) == values
    change = broker.controller.change_entities
    change(EntityKind.ACL, lambda _: {"Topic/literal/t": None}).result()
    broker.stop()
    broker = Broker(tmp_path, entities=recorded)
    assert not broker.metadata.entities.all(EntityKind.ACL), "what was done here since then counts"
    assert broker.metadata.entities.all(EntityKind.USER_CLIENT)
    broker.stop()
