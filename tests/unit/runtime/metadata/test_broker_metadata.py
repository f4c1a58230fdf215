"""What a broker takes over of a push, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.controller.states import state
from tests.unit.runtime.cluster_site import Heard

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId
from millstream.runtime.metadata.broker_metadata import BrokerMetadata, MetadataUpdate, TopicUpdate
from millstream.runtime.metadata.metadata_cache import MetadataCache

TOPIC = TopicId(bytes(range(16)))
ANOTHER = TopicId(bytes(range(1, 17)))
FIRST = state((1, 2), leader=1, isr=(1, 2))
NODE = BrokerNode(BrokerId(1), (Endpoint("PLAINTEXT", "h", 1),), None, 50)


def metadata_of(
    heard: Heard, on_brokers_changed: Callable[[], None] | None = None
) -> BrokerMetadata:
    return BrokerMetadata(
        BrokerId(1),
        MetadataCache("c"),
        DynamicConfig(BrokerConfig({"broker.id": "1"})),
        listener=heard,
        on_brokers_changed=on_brokers_changed,
    )


class Ear:
    """A broker with epoch 50 that has heard of controller epoch 4, and who listens to it."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.lives: list[tuple[BrokerId, ...]] = []
        """The live brokers, each time they have changed."""
        self.metadata = metadata_of(
            self.heard, lambda: self.lives.append(tuple(self.metadata.cache.brokers))
        )
        self.metadata.start_listening()
        self.metadata.broker_epoch = 50
        self.push(topic(FIRST), controller_epoch=4)

    def push(self, *topics: TopicUpdate, controller_epoch: int = 4, **more: object) -> None:
        update = MetadataUpdate(
            controller_id=BrokerId(controller_epoch),
            controller_epoch=controller_epoch,
            broker_epoch=50,
            brokers=[NODE],
            topics=topics,
        )
        self.metadata.apply(replace(update, **more))  # type: ignore[arg-type]

    def state(self, index: int = 0) -> PartitionState:
        image = self.metadata.cache.topic("t")
        assert image is not None
        return image.partitions[index]


def topic(*states: PartitionState, topic_id: TopicId = TOPIC, first: int = 0) -> TopicUpdate:
    partitions = {first + index: each for index, each in enumerate(states)}
    return TopicUpdate("t", topic_id, {}, first + len(states), partitions)


def refusal(ear: Ear, *topics: TopicUpdate, **more: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        ear.push(*topics, **more)  # type: ignore[arg-type]
    return raised.value.error


NEWER = replace(FIRST, leader=BrokerId(2), leader_epoch=8, partition_epoch=21)
OLDER = replace(FIRST, leader=BrokerId(2), leader_epoch=6, partition_epoch=19)


def test_a_newer_state_is_taken_over_and_an_older_one_is_not() -> None:
    ear = Ear()
    ear.push(topic(OLDER))
    assert ear.state() == FIRST
    ear.push(topic(replace(FIRST, isr=())))
    assert len(ear.heard.changed) == 1, "the same partition epoch is the same state"
    ear.push(topic(NEWER))
    assert ear.state() == NEWER
    assert ear.heard.changed[-1].partitions == (NEWER,)


def test_an_old_partition_does_not_come_along_with_a_new_one() -> None:
    ear = Ear()
    ear.push(topic(FIRST, FIRST))
    ear.push(topic(OLDER, NEWER))
    assert (ear.state(0), ear.state(1)) == (FIRST, NEWER)


def test_an_older_controller_is_refused_and_changes_nothing() -> None:
    ear = Ear()
    assert refusal(ear, topic(NEWER), controller_epoch=3) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (ear.state(), ear.metadata.cache.controller_id) == (FIRST, 4)
    ear.push(controller_epoch=5)
    assert ear.metadata.cache.controller_id == 5
    assert refusal(ear, topic(NEWER), controller_epoch=4) is ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("epoch", [49, 51])
def test_a_push_for_another_life_is_refused_and_changes_nothing(epoch: int) -> None:
    ear = Ear()
    assert refusal(ear, topic(NEWER), broker_epoch=epoch) is ErrorCode.STALE_BROKER_EPOCH
    assert ear.state() == FIRST


def test_a_broker_without_a_registration_takes_nothing() -> None:
    ear = Ear()
    ear.metadata.broker_epoch = None
    assert refusal(ear, topic(NEWER), broker_epoch=-1) is ErrorCode.STALE_BROKER_EPOCH


def test_parts_of_what_is_not_known_are_asked_for() -> None:
    ear = Ear()
    assert refusal(ear, topic(NEWER, first=2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = replace(topic(FIRST), name="u", partition_count=2)
    assert refusal(ear, other) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ear.metadata.cache.topic("u") is None


def test_a_deletion_hits_the_topic_of_its_id_alone() -> None:
    ear = Ear()
    ear.push(deleted=[("t", ANOTHER)])
    assert ear.heard.deleted == []
    ear.push(deleted=[("t", TOPIC)])
    assert ear.heard.deleted == ["t"]
    ear.push(topic(FIRST, topic_id=ANOTHER))
    ear.push(deleted=[("t", TOPIC)])
    assert ear.metadata.cache.topic_by_id(ANOTHER) is not None


def test_a_topic_of_another_id_takes_the_place_of_its_namesake() -> None:
    ear = Ear()
    ear.push(topic(OLDER, topic_id=ANOTHER))
    assert ear.heard.deleted == ["t"]
    assert ear.state() == OLDER


def test_what_is_not_in_the_list_of_all_topics_is_gone() -> None:
    ear = Ear()
    ear.push(all_topic_ids=[TOPIC])
    assert ear.metadata.cache.topic("t") is not None
    ear.push(all_topic_ids=[ANOTHER])
    assert ear.metadata.cache.topic("t") is None
    assert ear.heard.deleted == ["t"]


def test_what_was_read_before_the_start_is_told_with_the_first_push() -> None:
    ear = Ear()
    fresh = metadata_of(ear.heard)
    fresh.show(TopicState("t", TOPIC, (FIRST,), {}))
    fresh.start_listening()
    fresh.broker_epoch = 50
    ear.metadata = fresh
    ear.heard.changed.clear()
    ear.push(topic(FIRST))
    assert [image.partitions for image in ear.heard.changed] == [(FIRST,)]


def test_settings_change_without_a_newer_state() -> None:
    ear = Ear()
    ear.push(replace(topic(FIRST), overrides={"retention.ms": "5"}))
    image = ear.metadata.cache.topic("t")
    assert image is not None
    assert image.config.retention_ms == 5
    ear.push(broker_configs={"": {"message.max.bytes": "7"}, "2": {"message.max.bytes": "8"}})
    image = ear.metadata.cache.topic("t")
    assert image is not None
    assert (image.config.retention_ms, image.config.max_message_bytes) == (5, 7)
    assert ear.heard.changed[-1] is image


def test_it_is_told_who_lives_only_where_that_changes() -> None:
    ear = Ear()
    ear.lives.clear()
    ear.push(topic(FIRST))
    assert ear.lives == []
    ear.push(topic(FIRST), brokers=[NODE, replace(NODE, broker_id=BrokerId(7))])
    assert ear.lives == [(NODE.broker_id, BrokerId(7))]


def test_a_topic_read_at_the_start_and_deleted_since_is_deleted_here() -> None:
    """Its log may have been found at the start, though nobody has spoken of it since."""
    ear = Ear()
    fresh = metadata_of(ear.heard)
    fresh.show(TopicState("read", ANOTHER, (FIRST,), {}))
    fresh.start_listening()
    fresh.broker_epoch = 50
    ear.metadata = fresh
    ear.push(all_topic_ids=[TOPIC])
    assert ear.heard.deleted == ["read"]


def test_a_deletion_of_what_nobody_has_spoken_of_is_told() -> None:
    """The topic was half deleted when this broker came. A log of it may have been found."""
    ear = Ear()
    ear.push(deleted=[("half", ANOTHER)])
    assert ear.heard.deleted == ["half"]


def test_a_push_that_a_newer_one_has_overtaken_changes_nothing() -> None:
    """What an old connection still held arrives after what the next one brought: neither a topic
    that is new, nor settings, nor who lives may go back, and what is deleted stays so.
    """
    ear = Ear()
    new = replace(topic(FIRST, topic_id=ANOTHER), name="new")
    ear.push(topic(FIRST), sequence=1)
    ear.push(new, replace(topic(FIRST), overrides={"retention.ms": "5"}), sequence=4)
    for late in (
        {"all_topic_ids": [TOPIC]},
        {"broker_configs": {"": {"message.max.bytes": "7"}}},
        {"brokers": []},
    ):
        assert refusal(ear, topic(FIRST), sequence=3, **late) is ErrorCode.INVALID_UPDATE_VERSION
    assert ear.metadata.cache.topic("new") is not None
    assert ear.metadata.cache.brokers
    image = ear.metadata.cache.topic("t")
    assert image is not None
    assert (image.config.retention_ms, image.config.max_message_bytes) == (5, 1_048_588)
    ear.push(sequence=5, deleted=[("new", ANOTHER)])
    assert refusal(ear, new, sequence=4) is ErrorCode.INVALID_UPDATE_VERSION
    assert ear.metadata.cache.topic("new") is None


def test_each_controller_counts_its_pushes_anew() -> None:
    ear = Ear()
    ear.push(topic(FIRST), sequence=9)
    ear.push(topic(NEWER), controller_epoch=5, sequence=1)
    assert ear.state() == NEWER


def test_a_setting_that_cannot_be_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """A topic of an older Kafka that is compacted must not become one that is not."""
    ear = Ear()
    stored = {"message.format.version": "2.8", "cleanup.policy": "compact", "retention.ms": "x"}
    ear.push(replace(topic(NEWER), overrides=stored))
    image = ear.metadata.cache.topic("t")
    assert image is not None
    assert image.config.cleanup_policy == ("compact",)
    assert image.config.overrides == {"cleanup.policy": "compact"}
    assert image.config.retention_ms == 7 * 24 * 3_600_000
    assert "message.format.version" in caplog.text
    assert "Invalid value x for configuration retention.ms" in caplog.text


def test_a_directory_that_is_gone_takes_no_dynamic_setting_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was cordoned and emptied, and taken out of the broker's file."""
    ear = Ear()
    configs = {
        "": {"log.retention.ms": "-1", "no.such": "1"},
        "1": {"cordoned.log.dirs": "/gone", "log.cleaner.threads": "2"},
    }
    ear.push(broker_configs=configs)
    image = ear.metadata.cache.topic("t")
    assert image is not None
    assert image.config.retention_ms == -1
    assert "All entries in cordoned.log.dirs must be present" in caplog.text
    ear.push(broker_configs={**configs, "1": {}})
    assert len(caplog.records) == 1
