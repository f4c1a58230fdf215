"""DescribeLogDirs, DescribeProducers, DeleteRecords and InitProducerId."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

# --- DescribeLogDirs -----------------------------------------------------------------------


def directories(
    broker: AdminBroker, topics: dict[str, list[int]] | None, version: int = 4
) -> tuple[DescribeLogDirsResponse, dict[tuple[str, int], int]]:
    request = DescribeLogDirsRequest(
        topics=None
        if topics is None
        else [
            DescribableLogDirTopic(topic=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    )
    response = broker.call(request, version, DescribeLogDirsResponse)
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }
    return response, sizes


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_by_directory(broker: AdminBroker, version: int) -> None:
    broker.create("t", 2)
    broker.create("u")
    broker.fill("t", b"x" * 100, index=1)
    response, sizes = directories(broker, None, version)
    (result,) = response.results
    assert (result.error_code, result.log_dir) == (0, str(broker.directory))
    assert sizes == {
        ("t", 0): 0,
        ("t", 1): broker.partitions.get("t", 1).log.size,
        ("u", 0): 0,
    }
    assert sizes["t", 1] > 100
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_only_what_was_asked_for(broker: AdminBroker) -> None:
    broker.create("t", 2)
    broker.create("u")
    assert directories(broker, {"t": [1, 1, 9, -1], "absent": [0]})[1] == {("t", 1): 0}
    assert directories(broker, {})[1] == {}
    assert directories(broker, {"t": []})[1] == {}


def test_a_directory_that_failed(broker: AdminBroker) -> None:
    broker.create("t")
    broker.log_manager.directory_failed(str(broker.directory))
    response, sizes = directories(broker, None)
    (result,) = response.results
    assert (result.error_code, result.log_dir, sizes) == (
        ErrorCode.KAFKA_STORAGE_ERROR.code,
        str(broker.directory),
        {},
    )


# --- DescribeProducers ---------------------------------------------------------------------


def producers(broker: AdminBroker, topic: str, *indexes: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]
    )
    (answer,) = broker.call(request, 0, DescribeProducersResponse).topics
    assert answer.name == topic
    return answer.partitions


def test_the_producers_of_a_partition(broker: AdminBroker) -> None:
    broker.create("t", 2)
    broker.fill("t", b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0)
    broker.fill("t", b"c", producer_id=5, producer_epoch=0, base_sequence=4)
    broker.fill("t", b"plain")
    told, none = producers(broker, "t", 0, 1)
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp)
        for p in told.active_producers
    ] == [(5, 0, 4, broker.clock.now_ms()), (7, 1, 1, broker.clock.now_ms())]
    assert {p.current_txn_start_offset for p in told.active_producers} == {-1}
    assert {p.coordinator_epoch for p in told.active_producers} == {-1}
    assert (none.error_code, none.active_producers) == (0, [])


@pytest.mark.parametrize(
    ("topic", "index", "code", "message"),
    [
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, True),
    ],
)
def test_partitions_without_producers(
    broker: AdminBroker, topic: str, index: int, code: ErrorCode, message: bool
) -> None:
    broker.create("t")
    (answer,) = producers(broker, topic, index)
    assert (answer.error_code, answer.active_producers) == (code.code, [])
    assert (answer.error_message is not None) == message


# --- DeleteRecords -------------------------------------------------------------------------


def delete(
    broker: AdminBroker, *wanted: tuple[str, int, int], version: int = 2
) -> dict[tuple[str, int], tuple[int, int]]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
            for name, index, offset in wanted
        ],
        timeout_ms=1000,
    )
    return {
        (topic.name, each.partition_index): (each.low_watermark, each.error_code)
        for topic in broker.call(request, version, DeleteRecordsResponse).topics
        for each in topic.partitions
    }


OUT_OF_RANGE = (-1, ErrorCode.OFFSET_OUT_OF_RANGE.code)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, (0, 0)),
        (2, (2, 0)),
        (3, (3, 0)),
        (-1, (3, 0)),
        (4, OUT_OF_RANGE),
        (-2, OUT_OF_RANGE),
        (2**63 - 1, OUT_OF_RANGE),
    ],
)
def test_the_log_starts_at_the_offset(
    broker: AdminBroker, version: int, offset: int, expected: tuple[int, int]
) -> None:
    broker.create("t")
    broker.fill("t", b"a", b"b", b"c")
    assert delete(broker, ("t", 0, offset), version=version) == {("t", 0): expected}
    assert broker.partitions.get("t", 0).log.log_start_offset == max(0, expected[0])


def test_the_start_does_not_go_back_and_the_last_of_two_counts(broker: AdminBroker) -> None:
    broker.create("t")
    broker.fill("t", b"a", b"b", b"c")
    assert delete(broker, ("t", 0, 3), ("t", 0, 2)) == {("t", 0): (2, 0)}
    assert delete(broker, ("t", 0, 1)) == {("t", 0): (2, 0)}


def test_topics_whose_records_stay(broker: AdminBroker) -> None:
    broker.create("compact", cleanup_policy="compact")
    broker.create("both", cleanup_policy="compact,delete")
    broker.controller.topics.ensure_topic("__consumer_offsets").result()
    results = delete(
        broker,
        ("compact", 0, 0),
        ("both", 0, 0),
        ("__consumer_offsets", 0, 0),
        ("absent", 0, 0),
        ("both", 5, 0),
    )
    assert {key: code for key, (_, code) in results.items()} == {
        ("compact", 0): ErrorCode.POLICY_VIOLATION.code,
        ("both", 0): 0,
        ("__consumer_offsets", 0): ErrorCode.INVALID_TOPIC_EXCEPTION.code,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
        ("both", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
    }


# --- InitProducerId ------------------------------------------------------------------------


def init(
    broker: AdminBroker,
    version: int = 5,
    transactional_id: str | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    response = broker.call(request, version, InitProducerIdResponse)
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(broker: AdminBroker, version: int) -> None:
    assert [init(broker, version) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ((77, 3), (0, 0, 0)),
        ((-2, -2), (0, 0, 0)),
        ((77, -1), (ErrorCode.INVALID_REQUEST.code, -1, -1)),
        ((-1, 3), (ErrorCode.INVALID_REQUEST.code, -1, -1)),
    ],
)
def test_an_id_that_the_producer_names(
    broker: AdminBroker, identity: tuple[int, int], expected: tuple[int, int, int]
) -> None:
    assert init(broker, 3, None, *identity) == expected


def test_the_empty_transactional_id_is_refused(broker: AdminBroker) -> None:
    assert init(broker, transactional_id="") == (ErrorCode.INVALID_REQUEST.code, -1, -1)
