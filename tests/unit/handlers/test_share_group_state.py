"""The state of share partitions, from the persister through the handlers to the log and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.handlers.share_groups_broker import ShareBroker

from millstream.model.errors import ErrorCode
from millstream.model.topic import SHARE_GROUP_STATE_TOPIC, TopicId
from millstream.protocol.messages import initialize_share_group_state as initializing
from millstream.protocol.messages import read_share_group_state as reading
from millstream.protocol.messages import read_share_group_state_summary as summarizing
from millstream.protocol.messages import write_share_group_state as writing
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.share.state import (
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
    StateBatch,
)

T = TypeVar("T")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShareBroker]:
    broker = ShareBroker(tmp_path)
    yield broker
    broker.end()


def test_state_is_kept_over_a_new_start(broker: ShareBroker) -> None:
    topic_id = broker.topic("orders")
    keys = [SharePartitionKey("g", topic_id, index) for index in (0, 1)]
    for key in keys:
        broker.result(broker.persister.initialize(key, state_epoch=1))
    update = ShareStateUpdate(1, 4, 10, 3, (StateBatch(10, 12, 2, 1), StateBatch(14, 14, 0, 2)))
    replies = [broker.persister.write(key, update) for key in keys]
    for reply in replies:
        broker.result(reply)
    expected = ShareState(1, 10, (StateBatch(10, 12, 2, 1), StateBatch(14, 14, 0, 2)))
    assert broker.result(broker.persister.read(keys[0], leader_epoch=4)) == expected
    broker.start_again()
    assert broker.result(broker.persister.read(keys[0], leader_epoch=4)) == expected
    assert broker.result(broker.persister.read(keys[1], leader_epoch=5)) == expected
    fenced = broker.persister.write(keys[1], update)
    assert broker.refusal(fenced) is ErrorCode.FENCED_LEADER_EPOCH
    summary = broker.result(broker.persister.read_summary(keys[1]))
    assert summary == ShareStateSummary(1, 5, 10, 3)
    broker.result(broker.persister.delete(keys[1]))
    gone = broker.persister.read(keys[1], leader_epoch=5)
    assert broker.refusal(gone) is ErrorCode.INVALID_REQUEST


def test_the_topic_is_made_as_kafka_makes_it(broker: ShareBroker) -> None:
    key = SharePartitionKey("g", broker.topic("orders"), 0)
    broker.result(broker.persister.initialize(key, state_epoch=0))
    image = broker.metadata.topic(SHARE_GROUP_STATE_TOPIC)
    assert image is not None
    assert len(image.partitions) == 3
    assert dict(image.config.overrides) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


def test_what_snapshots_have_replaced_is_deleted(tmp_path: Path) -> None:
    broker = ShareBroker(
        tmp_path,
        {
            "share.coordinator.snapshot.update.records.per.snapshot": "2",
            "share.coordinator.state.topic.num.partitions": "1",
        },
    )
    key = SharePartitionKey("g", broker.topic("orders"), 0)
    broker.result(broker.persister.initialize(key, state_epoch=0))
    for offset in range(20):
        update = ShareStateUpdate(0, 0, -1, -1, (StateBatch(offset, offset, 2, 1),))
        broker.result(broker.persister.write(key, update))
    broker.clock.advance(300_000)
    log = broker.partitions.get(SHARE_GROUP_STATE_TOPIC, 0).log
    assert log.log_start_offset == 18, "the last snapshot: one of three records"
    broker.start_again()
    state = broker.result(broker.persister.read(key, leader_epoch=0))
    assert state == ShareState(0, -1, (StateBatch(0, 19, 2, 1),))
    broker.end()


def test_a_deleted_topics_share_partitions_are_forgotten(broker: ShareBroker) -> None:
    topic_id = broker.topic("orders")
    key = SharePartitionKey("g", topic_id, 0)
    broker.result(broker.persister.initialize(key, state_epoch=0))
    image = broker.metadata.topic("orders")
    assert image is not None
    broker.share_coordinator.topic_deleted(image)
    read = broker.persister.read(key, leader_epoch=0)
    assert broker.refusal(read) is ErrorCode.INVALID_REQUEST


def test_a_topic_that_was_deleted_while_nobody_coordinated_is_forgotten(
    broker: ShareBroker,
) -> None:
    gone, kept = (
        SharePartitionKey("g", broker.topic(name), 0) for name in ("short-lived", "orders")
    )
    for key in (gone, kept):
        broker.result(broker.persister.initialize(key, state_epoch=0))
    broker.share_coordinator.stop()
    image = broker.metadata.remove("short-lived")
    assert image is not None
    broker.start_again()
    broker.share_coordinator.start()
    broker.clock.advance(310_000)
    broker.metadata.update(image)
    assert broker.result(broker.persister.read(gone, leader_epoch=0)), "it may only be told late"
    broker.metadata.remove("short-lived")
    broker.clock.advance(610_000)
    broker.metadata.update(image)
    read = broker.persister.read(gone, leader_epoch=0)
    assert broker.refusal(read) is ErrorCode.INVALID_REQUEST
    assert broker.result(broker.persister.read(kept, leader_epoch=0))


def test_each_share_partition_has_its_own_result(broker: ShareBroker) -> None:
    topic_id = broker.topic("orders")
    broker.result(broker.persister.initialize(SharePartitionKey("g", topic_id, 0), state_epoch=0))
    response = broker.send(
        initializing.InitializeShareGroupStateRequest(
            group_id="g",
            topics=[
                initializing.InitializeStateData(
                    topic_id=each,
                    partitions=[
                        initializing.PartitionData(partition=index, state_epoch=0, start_offset=3)
                        for index in (1, 2, -1)
                    ],
                )
                for each in (topic_id, TopicId(bytes(16)))
            ],
        ),
        0,
    )
    assert isinstance(response, initializing.InitializeShareGroupStateResponse)
    codes = [[each.error_code for each in topic.partitions] for topic in response.results]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    invalid = ErrorCode.INVALID_REQUEST.code
    assert codes == [[0, unknown, invalid], [unknown, unknown, invalid]]


def test_a_request_without_a_group_or_partitions_has_an_empty_answer(broker: ShareBroker) -> None:
    topic_id = broker.topic("orders")
    empty = broker.send(
        reading.ReadShareGroupStateRequest(
            group_id="",
            topics=[
                reading.ReadStateData(
                    topic_id=topic_id,
                    partitions=[reading.PartitionData(partition=0, leader_epoch=0)],
                )
            ],
        ),
        0,
    )
    assert empty == reading.ReadShareGroupStateResponse(results=[])
    hollow = broker.send(
        writing.WriteShareGroupStateRequest(
            group_id="g", topics=[writing.WriteStateData(topic_id=topic_id, partitions=[])]
        ),
        1,
    )
    assert hollow == writing.WriteShareGroupStateResponse(results=[])


def test_a_new_state_needs_no_partitions_of_every_topic(broker: ShareBroker) -> None:
    topic_id, other = broker.topic("orders"), broker.topic("payments")
    broker.result(broker.persister.initialize(SharePartitionKey("g", topic_id, 0), state_epoch=0))
    data = [initializing.PartitionData(partition=0, state_epoch=0, start_offset=3)]
    response = broker.send(
        initializing.InitializeShareGroupStateRequest(
            group_id="g",
            topics=[
                initializing.InitializeStateData(topic_id=other, partitions=[]),
                initializing.InitializeStateData(topic_id=topic_id, partitions=data),
            ],
        ),
        0,
    )
    assert isinstance(response, initializing.InitializeShareGroupStateResponse)
    (result,) = response.results
    assert (result.topic_id, result.partitions[0].error_code) == (topic_id, 0)


def test_a_share_partition_that_is_named_twice_has_one_result(broker: ShareBroker) -> None:
    """Both are carried out, and the later one answers."""
    topic_id = broker.topic("orders")
    broker.result(broker.persister.initialize(SharePartitionKey("g", topic_id, 0), state_epoch=0))
    data = [
        initializing.PartitionData(partition=0, state_epoch=epoch, start_offset=epoch)
        for epoch in (4, 3)
    ]
    response = broker.send(
        initializing.InitializeShareGroupStateRequest(
            group_id="g",
            topics=[initializing.InitializeStateData(topic_id=topic_id, partitions=data)],
        ),
        0,
    )
    assert isinstance(response, initializing.InitializeShareGroupStateResponse)
    (result,) = response.results
    codes = [each.error_code for each in result.partitions]
    assert codes == [ErrorCode.FENCED_STATE_EPOCH.code]
    summary = broker.result(broker.persister.read_summary(SharePartitionKey("g", topic_id, 0)))
    assert summary.start_offset == 4


@pytest.mark.parametrize("version", [0, 1])
def test_an_older_version_of_the_summary_leaves_the_count_out(
    broker: ShareBroker, version: int
) -> None:
    topic_id = broker.topic("orders")
    key = SharePartitionKey("g", topic_id, 0)
    broker.result(broker.persister.initialize(key, state_epoch=0, start_offset=5))
    response = broker.send(
        summarizing.ReadShareGroupStateSummaryRequest(
            group_id="g",
            topics=[
                summarizing.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[summarizing.PartitionData(partition=0, leader_epoch=-1)],
                )
            ],
        ),
        version,
    )
    assert isinstance(response, summarizing.ReadShareGroupStateSummaryResponse)
    (result,) = response.results[0].partitions
    assert (result.start_offset, result.delivery_complete_count) == (5, 0 if version else -1)


def test_a_key_that_is_none_has_no_coordinator(broker: ShareBroker) -> None:
    good = SharePartitionKey("g", broker.topic("orders"), 0).coordinator_key
    response = broker.send(FindCoordinatorRequest(key_type=2, coordinator_keys=["g", good]), 6)
    assert isinstance(response, FindCoordinatorResponse)
    codes = {each.key: each.error_code for each in response.coordinators}
    assert codes == {"g": ErrorCode.INVALID_REQUEST.code, good: 0}
