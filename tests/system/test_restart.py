"""What a broker knows outlives it: topics, ids, settings, groups, offsets and producers.

Each test runs over a clean stop and over kill -9. Requests are our own and raw, because clients
would hide what a restart loses behind retries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import (
    PRODUCE_VERSION,
    Wire,
    create_topic,
    offset_for,
    produce,
    produce_request,
    read_all,
)

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from millstream.records.builder import BatchBuilder, BatchOptions

pytestmark = pytest.mark.system

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
BROKER, TOPIC = 4, 2
SET = 0
ENDINGS = ["stop", "kill"]


class Life:
    """A broker and a connection to it, both made anew by each restart."""

    def __init__(self, broker: BrokerProcess, ending: str) -> None:
        self._broker = broker
        self.ending = ending
        self.wire = Wire(broker.host, broker.port)

    @property
    def broker_log(self) -> str:
        return self._broker.log

    def restart(self) -> None:
        self.wire.close()
        if self.ending == "stop":
            self._broker.stop()
        else:
            self._broker.kill()
        self._broker.start()
        self.wire = Wire(self._broker.host, self._broker.port)


@pytest.fixture(params=ENDINGS)
def life(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Life]:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        alive = Life(broker, request.param)
        yield alive
        alive.wire.close()
    finally:
        broker.stop()


# Topics and settings


def metadata(wire: Wire) -> MetadataResponse:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return wire.call(request, 12, MetadataResponse)


def topics(wire: Wire) -> dict[str | None, tuple[bytes, list[tuple[int, int]]]]:
    """Return id and (index, leader) of the partitions of every topic."""
    return {
        topic.name: (
            bytes(topic.topic_id),
            [(each.partition_index, each.leader_id) for each in topic.partitions],
        )
        for topic in metadata(wire).topics
    }


def settings(wire: Wire, resource_type: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Return value and source of every setting."""
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    response = wire.call(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse)
    (result,) = response.results
    assert result.error_code == 0
    found = {config.name: (config.value, config.config_source) for config in result.configs}
    found.pop("listeners", None)  # the system picked the port of the first run alone
    return found


def alter(wire: Wire, resource_type: int, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=SET, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = wire.call(request, 1, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in response.responses] == [0]


def delete_topic(wire: Wire, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    response = wire.call(request, 5, DeleteTopicsResponse)
    assert [each.error_code for each in response.responses] == [0]


def grow(wire: Wire, name: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
    response = wire.call(request, 3, CreatePartitionsResponse)
    assert [each.error_code for each in response.results] == [0]


def test_topics_and_settings_outlive_the_broker(life: Life) -> None:
    wire = life.wire
    create_topic(wire, "plain", 3)
    create_topic(wire, "odd", 2, {"retention.ms": "12345678", "cleanup.policy": "compact"})
    create_topic(wire, "grown", 1)
    grow(wire, "grown", 5)
    alter(wire, TOPIC, "plain", "segment.bytes", "2097152")
    alter(wire, BROKER, "", "log.retention.ms", "86400001")
    alter(wire, BROKER, "1", "message.max.bytes", "2000000")
    create_topic(wire, "gone", 2)
    first_id = create_topic(wire, "again", 1)
    produce(wire, "again", 0, batch(b"of the first topic of this name"))
    delete_topic(wire, "gone")
    delete_topic(wire, "again")
    assert create_topic(wire, "again", 1) != first_id

    def everything() -> list[object]:
        told = metadata(life.wire)
        return [
            told.cluster_id,
            [(each.node_id, each.host, each.port) for each in told.brokers],
            topics(life.wire),
            [settings(life.wire, TOPIC, name) for name in ("plain", "odd", "grown", "again")],
            settings(life.wire, BROKER, "1"),
        ]

    before = everything()
    assert set(topics(wire)) == {"plain", "odd", "grown", "again"}
    for _ in range(2):
        life.restart()
        assert everything() == before
        assert read_all(life.wire, "again", 0) == []


def batch(*values: bytes, **options: int) -> bytes:
    builder = BatchBuilder(BatchOptions(**options))  # type: ignore[arg-type]
    for value in values:
        builder.append(time.time_ns() // 1_000_000, None, value)
    return builder.build()


def test_a_log_start_that_was_moved_stays(life: Life) -> None:
    """After kill -9 it may be older, up to a checkpoint ago, as in Kafka: never newer."""
    create_topic(life.wire, "t", 1)
    for number in range(10):
        produce(life.wire, "t", 0, batch(b"%d" % number))
    wanted = DeleteRecordsPartition(partition_index=0, offset=4)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1_000
    )
    response = life.wire.call(request, 2, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].low_watermark == 4
    life.restart()
    expected = {4} if life.ending == "stop" else {0, 4}
    assert offset_for(life.wire, "t", 0, -2).offset in expected
    assert [record.value for record in read_all(life.wire, "t", 0, 4)] == [
        b"%d" % number for number in range(4, 10)
    ]


# Groups and offsets


def find_coordinator(wire: Wire, group: str) -> None:
    """Ask for the coordinator, as every client does first; that makes its topic."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    response = wire.call(request, 4, FindCoordinatorResponse)
    assert [each.error_code for each in response.coordinators] == [0]


def until_loaded(ask: Callable[[], int]) -> int:
    """Ask again while the coordinator loads; return the error code."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        code = ask()
        if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code:
            return code
        time.sleep(0.02)
    pytest.fail("the coordinator did not load")


def commit(
    wire: Wire,
    group: str,
    offsets: dict[int, int],
    metadata_text: str | None = None,
    *,
    generation: int = -1,
    member: str = "",
) -> int:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata=metadata_text,
        )
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )

    def ask() -> int:
        response = wire.call(request, 9, OffsetCommitResponse)
        (code,) = {each.error_code for each in response.topics[0].partitions}
        return code

    return until_loaded(ask)


def committed(wire: Wire, group: str) -> dict[int, tuple[int, int, str | None]]:
    """Return offset, leader epoch and metadata of every partition that has an offset."""
    found: dict[int, tuple[int, int, str | None]] = {}
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)

    def ask() -> int:
        found.clear()
        response = wire.call(OffsetFetchRequest(groups=[wanted]), 9, OffsetFetchResponse)
        for topic in response.groups[0].topics:
            for each in topic.partitions:
                found[each.partition_index] = (
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                )
        return response.groups[0].error_code

    assert until_loaded(ask) == 0
    return found


def test_committed_offsets_outlive_the_broker(life: Life) -> None:
    create_topic(life.wire, "t", 8)
    find_coordinator(life.wire, "group-0")
    groups = [f"group-{number}" for number in range(40)]
    for number, group in enumerate(groups):
        for round_ in range(3):
            offsets = {index: number * 100 + index * 10 + round_ for index in range(8)}
            assert commit(life.wire, group, offsets, f"round {round_}") == 0
    forgotten = OffsetDeleteRequest(
        group_id="group-7",
        topics=[
            OffsetDeleteRequestTopic(
                name="t", partitions=[OffsetDeleteRequestPartition(partition_index=3)]
            )
        ],
    )
    response = life.wire.call(forgotten, 0, OffsetDeleteResponse)
    assert response.error_code == 0
    before = {group: committed(life.wire, group) for group in groups}
    assert before["group-5"][2] == (522, 0, "round 2")
    assert 3 not in before["group-7"]
    for _ in range(2):
        life.restart()
        assert {group: committed(life.wire, group) for group in groups} == before


def join(wire: Wire, group: str, member: str) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0")],
    )
    return wire.call(request, 9, JoinGroupResponse)


def sync(wire: Wire, group: str, joined: JoinGroupResponse, assignment: bytes) -> SyncGroupResponse:
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[mine] if assignment else [],
    )
    return wire.call(request, 5, SyncGroupResponse)


def heartbeat(wire: Wire, group: str, joined: JoinGroupResponse, generation: int) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=joined.member_id)
    return until_loaded(lambda: wire.call(request, 4, HeartbeatResponse).error_code)


def test_a_member_goes_on_as_if_nothing_had_happened(life: Life) -> None:
    create_topic(life.wire, "t", 1)
    find_coordinator(life.wire, "club")
    refused = join(life.wire, "club", "")
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED.code
    joined = join(life.wire, "club", refused.member_id)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert sync(life.wire, "club", joined, b"all of it").assignment == b"all of it"
    assert commit(life.wire, "club", {0: 5}, generation=1, member=joined.member_id) == 0
    life.restart()
    assert heartbeat(life.wire, "club", joined, generation=1) == 0
    assert heartbeat(life.wire, "club", joined, generation=2) == ErrorCode.ILLEGAL_GENERATION.code
    assert bytes(sync(life.wire, "club", joined, b"").assignment) == b"all of it"
    assert commit(life.wire, "club", {0: 6}, generation=1, member=joined.member_id) == 0
    stranger = commit(life.wire, "club", {0: 7}, generation=1, member="stranger")
    assert stranger == ErrorCode.UNKNOWN_MEMBER_ID.code
    assert committed(life.wire, "club")[0][0] == 6


# Producers


def new_producer_id(wire: Wire) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    response = wire.call(request, 4, InitProducerIdResponse)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    return response.producer_id


def sequenced(producer_id: int, base_sequence: int, *, epoch: int = 0) -> bytes:
    """Two records of an idempotent producer."""
    return batch(
        *(b"%d" % (base_sequence + number) for number in range(2)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
    )


def test_idempotent_producers_outlive_the_broker(life: Life) -> None:
    create_topic(life.wire, "t", 1)
    producer_id = new_producer_id(life.wire)
    for base_sequence in range(0, 20, 2):
        answer = produce(life.wire, "t", 0, sequenced(producer_id, base_sequence))
        assert (answer.error_code, answer.base_offset) == (0, base_sequence)
    life.restart()
    # A snapshot, which a clean stop leaves, holds the newest batch of the window alone.
    known = [18] if life.ending == "stop" else [18, 16, 14, 12, 10]
    for base_sequence in known:
        answer = produce(life.wire, "t", 0, sequenced(producer_id, base_sequence))
        assert (answer.error_code, answer.base_offset) == (0, base_sequence)
    beyond = produce(life.wire, "t", 0, sequenced(producer_id, 30))
    assert beyond.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code
    older = produce(life.wire, "t", 0, sequenced(producer_id, 8))
    assert older.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code
    assert produce(life.wire, "t", 0, sequenced(producer_id, 20)).base_offset == 20
    assert produce(life.wire, "t", 0, sequenced(producer_id, 0, epoch=1)).base_offset == 22
    life.restart()
    fenced = produce(life.wire, "t", 0, sequenced(producer_id, 22, epoch=0))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH.code
    again = produce(life.wire, "t", 0, sequenced(producer_id, 0, epoch=1))
    assert (again.error_code, again.base_offset) == (0, 22)
    values = [record.value for record in read_all(life.wire, "t", 0)]
    assert values == [b"%d" % number for number in (*range(22), 0, 1)]


def test_no_producer_id_is_given_twice(life: Life) -> None:
    given = [new_producer_id(life.wire) for _ in range(5)]
    for _ in range(2):
        life.restart()
        given += [new_producer_id(life.wire) for _ in range(5)]
    assert len(set(given)) == len(given)


def test_a_batch_that_was_on_its_way_when_the_broker_died_is_there_once(tmp_path: Path) -> None:
    """An idempotent producer sends everything again that it has no answer for, and nothing is
    there twice, wherever in the write and the flush the broker died.
    """
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        with Wire(broker.host, broker.port) as wire:
            create_topic(wire, "t", 1)
            producer_id = new_producer_id(wire)
        sequence = 0
        for round_ in range(8):
            with Wire(broker.host, broker.port) as wire:
                sent = [sequenced(producer_id, sequence + 2 * number) for number in range(5)]
                for data in sent:
                    wire.send(produce_request("t", {0: data}), PRODUCE_VERSION)
                # From before the first is read to after the last is answered.
                time.sleep(round_ * 0.001)
                broker.kill()
            broker.start()
            with Wire(broker.host, broker.port) as wire:
                for number, data in enumerate(sent):
                    answer = produce(wire, "t", 0, data)
                    expected = (0, sequence + 2 * number)
                    assert (answer.error_code, answer.base_offset) == expected
                sequence += 10
                values = [record.value for record in read_all(wire, "t", 0)]
            assert values == [b"%d" % number for number in range(sequence)]
    finally:
        broker.stop()
