"""Reading on the twin: positions, resets, truncation, sessions, bad records, prefetch."""

from __future__ import annotations

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import EPOCH_MS, TwinLoop
from tests.client_twin.member import TwinMember
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.consumer.errors import (
    CorruptRecordError,
    LogTruncationError,
    NoOffsetError,
    OffsetsOutOfRangeError,
    RecordDeserializationError,
    WakeupError,
)
from millstream.client.core.consumer.record import ConsumerRecord, OffsetAndMetadata
from millstream.client.errors import BrokerError, TimedOutError
from millstream.model.errors import ConfigError, ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.fetch import FetchRequest, FetchResponse
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions
from millstream.records.rows import encode_rows

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def cluster() -> ReaderCluster:
    made = ReaderCluster(TwinLoop(7), [1, 2])
    made.create_topic("t", 2)
    for _ in range(4):
        made.fill("t", 0, 5)
    return made


def member(cluster: ReaderCluster, **settings: object) -> TwinMember:
    return TwinMember(cluster, **{"group_id": None, **settings})  # type: ignore[arg-type]


def read(reader: TwinMember, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """Poll until so many records are there, at most 10 s."""
    found: list[ConsumerRecord[bytes, bytes]] = []
    end = reader.loop.now_ms() + 10_000
    while len(found) < count and reader.loop.now_ms() < end:
        found += reader.loop.run(reader.poll(500))
    return found


def offsets(records: list[ConsumerRecord[bytes, bytes]]) -> list[int]:
    return [each.offset for each in records]


def failure(reader: TwinMember) -> Exception:
    for _ in range(20):
        try:
            reader.loop.run(reader.poll(500))
        except Exception as error:
            return error
    raise AssertionError("no error came")


def test_everything_is_read_in_order_and_the_position_follows(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    records = read(reader, 20)
    assert offsets(records) == list(range(20))
    assert [each.value for each in records] == [
        b"%d" % n + b" " * (10 - len(b"%d" % n)) for n in range(20)
    ]
    assert reader.core.state(T0).position == 20
    cluster.fill("t", 0, 3)
    assert offsets(read(reader, 3)) == [20, 21, 22]


def test_a_poll_returns_no_more_than_it_is_asked_for(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    sizes = []
    while sum(sizes) < 20:
        sizes.append(len(reader.loop.run(reader.poll(500, 7))))
        assert reader.core.state(T0).position == sum(sizes)
    assert max(sizes) == 7


def test_records_can_be_given_back(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    first = reader.loop.run(reader.poll(500, 8))
    assert offsets(first) == list(range(8))
    reader.delivery.give_back(5)
    assert reader.core.state(T0).position == 3
    assert offsets(read(reader, 17)) == list(range(3, 20))
    first = read(reader, 0)
    reader.delivery.give_back(0)
    assert first == []


def test_a_fetch_that_was_handed_out_whole_can_be_given_back(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    taken = reader.loop.run(reader.poll(500, 100))
    reader.delivery.give_back(len(taken))
    assert reader.core.state(T0).position == 0
    assert offsets(read(reader, 20)) == list(range(20))


def test_seek_drops_what_is_buffered(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    assert offsets(reader.loop.run(reader.poll(500, 3))) == [0, 1, 2]
    reader.core.seek(T0, 17)
    assert offsets(read(reader, 3)) == [17, 18, 19]
    reader.core.reset([T0], to_end=False)
    assert offsets(read(reader, 1))[0] == 0
    with pytest.raises(ValueError, match="not assigned"):
        reader.core.seek(T1, 0)


def test_paused_partitions_keep_what_they_have(cluster: ReaderCluster) -> None:
    cluster.fill("t", 1, 4)
    reader = member(cluster)
    reader.core.assign([T0, T1])
    read(reader, 1)
    reader.core.seek(T0, 0)
    reader.core.seek(T1, 0)
    reader.loop.advance(1_000)
    reader.core.pause([T0])
    assert {each.partition for each in read(reader, 4)} == {1}
    assert reader.loop.run(reader.poll(500)) == []
    fetched = len(cluster.fetches)
    reader.core.resume([T0])
    assert offsets(reader.loop.run(reader.poll(0, 4))) == [0, 1, 2, 3]
    assert len(cluster.fetches) == fetched, "what was buffered was not fetched again"


@pytest.mark.parametrize(
    ("reset", "first"),
    [("earliest", 0), ("latest", 20), ("by_duration:PT10.5S", 11), ("by_duration:PT0.5S", 20)],
)
def test_where_reading_begins_without_an_offset(
    cluster: ReaderCluster, reset: str, first: int
) -> None:
    # Records are a second apart; the twin's clock begins a second after EPOCH_MS.
    times = [EPOCH_MS - 20_000 + 1_000 * index for index in range(20)]
    row = cluster.topics["t"].partitions[1]
    data = encode_rows(times, [None] * 20, [b"v"] * 20, options=BatchOptions())
    cluster.append(row, bytes(data))
    reader = member(cluster, auto_offset_reset=reset)
    reader.core.assign([T1])
    assert reader.loop.run(reader.core.position(T1, 5_000)) == first


def test_none_resets_nothing(cluster: ReaderCluster) -> None:
    reader = member(cluster, auto_offset_reset="none")
    reader.core.assign([T0])
    error = failure(reader)
    assert isinstance(error, NoOffsetError)
    assert error.partitions == {T0}
    reader.core.seek(T0, 4)
    assert offsets(read(reader, 16)) == list(range(4, 20))


def test_an_offset_that_is_gone_is_reset_or_told(cluster: ReaderCluster) -> None:
    cluster.drop_before("t", 0, 10)
    reader = member(cluster)
    reader.core.assign([T0])
    reader.core.seek(T0, 3)
    assert offsets(read(reader, 10)) == list(range(10, 20))
    strict = member(cluster, auto_offset_reset="none")
    strict.core.assign([T0])
    strict.core.seek(T0, 3)
    error = failure(strict)
    assert isinstance(error, OffsetsOutOfRangeError)
    assert error.offsets == {T0: 3}


def test_records_before_an_out_of_range_position_are_handed_out_first(
    cluster: ReaderCluster,
) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    reader.loop.run(reader.poll(500, 1))
    reader.loop.advance(2_000)
    cluster.truncate("t", 0, 15)
    assert offsets(read(reader, 19)) == list(range(1, 20))


def test_new_leaders_are_followed(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    for _ in range(3):
        leader = cluster.topics["t"].partitions[0].leader
        cluster.move_leader("t", 0, 3 - leader)
        cluster.fill("t", 0, 2)
        assert len(read(reader, 2)) == 2


def test_truncation_below_the_position_is_found_by_the_epoch(cluster: ReaderCluster) -> None:
    """KIP-320: the new leader lost the last five records that were read."""
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    cluster.truncate("t", 0, 15)
    cluster.move_leader("t", 0, 2)
    cluster.fill("t", 0, 7)
    assert offsets(read(reader, 7)) == [15, 16, 17, 18, 19, 20, 21]


def test_truncation_is_told_when_nothing_may_be_reset(cluster: ReaderCluster) -> None:
    reader = member(cluster, auto_offset_reset="none")
    reader.core.assign([T0])
    reader.core.seek(T0, 0)
    read(reader, 20)
    cluster.truncate("t", 0, 15)
    cluster.move_leader("t", 0, 2)
    cluster.fill("t", 0, 1)
    error = failure(reader)
    assert isinstance(error, LogTruncationError)
    assert error.divergent == {T0: OffsetAndMetadata(15, "", 0)}
    reader.core.seek(T0, 15)
    assert offsets(read(reader, 1)) == [15]


def test_a_sought_offset_with_its_epoch_is_checked(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    cluster.truncate("t", 0, 10)
    cluster.move_leader("t", 0, 2)
    cluster.fill("t", 0, 15)
    reader.loop.run(reader.core.metadata.request_update())
    reader.core.seek(T0, 20, 0)
    assert offsets(read(reader, 1))[0] == 10


def test_a_topic_that_is_created_anew_is_read_from_its_beginning(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    cluster.delete_topic("t")
    reader.loop.advance(500)
    cluster.create_topic("t", 2)
    cluster.fill("t", 0, 30)
    assert offsets(read(reader, 30)) == list(range(30))


def test_a_topic_that_is_created_anew_is_told_when_nothing_may_be_reset(
    cluster: ReaderCluster,
) -> None:
    reader = member(cluster, auto_offset_reset="none")
    reader.core.assign([T0])
    reader.core.seek(T0, 0)
    read(reader, 20)
    cluster.delete_topic("t")
    reader.loop.advance(500)
    cluster.create_topic("t", 2)
    cluster.fill("t", 0, 30)
    error = failure(reader)
    assert isinstance(error, NoOffsetError)
    reader.core.seek(T0, 4)
    assert offsets(read(reader, 26)) == list(range(4, 30))


# --- records that cannot be read -----------------------------------------------------------------


def damage(cluster: ReaderCluster, index: int) -> None:
    batches = cluster.topics["t"].partitions[0].batches
    data = bytearray(batches[index])
    data[HEADER_SIZE + 3] ^= 0xFF
    batches[index] = bytes(data)


def test_a_damaged_batch_is_told_with_its_place_and_can_be_passed(cluster: ReaderCluster) -> None:
    damage(cluster, 2)
    reader = member(cluster)
    reader.core.assign([T0])
    assert offsets(read(reader, 10)) == list(range(10))
    for _ in range(2):
        error = failure(reader)
        assert isinstance(error, CorruptRecordError)
        assert (error.topic_partition, error.offset, error.next_offset) == (T0, 10, 15)
    assert reader.core.state(T0).position == 10
    reader.core.seek(T0, error.next_offset)
    assert offsets(read(reader, 5)) == list(range(15, 20))


@pytest.mark.parametrize(("position", "bits"), [(22, 0x20), (60, 5), (26, 7)])
def test_damage_that_would_hide_records_is_told(
    cluster: ReaderCluster, position: int, bits: int
) -> None:
    """In the header: a control batch, one without records, one that ends elsewhere."""
    batches = cluster.topics["t"].partitions[0].batches
    data = bytearray(batches[1])
    data[position] ^= bits
    batches[1] = bytes(data)
    reader = member(cluster)
    reader.core.assign([T0])
    assert offsets(read(reader, 5)) == list(range(5))
    error = failure(reader)
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 5


@pytest.mark.parametrize(("index", "next_offset"), [(1, 10), (3, 16)])
def test_where_damage_ends_is_not_taken_from_it(
    cluster: ReaderCluster, index: int, next_offset: int
) -> None:
    """The last offset of the batch is damaged: it lies millions of records ahead."""
    batches = cluster.topics["t"].partitions[0].batches
    data = bytearray(batches[index])
    data[24] ^= 0x40
    batches[index] = bytes(data)
    reader = member(cluster)
    reader.core.assign([T0])
    assert offsets(read(reader, 5 * index)) == list(range(5 * index))
    error = failure(reader)
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.next_offset) == (5 * index, next_offset)


def test_a_record_that_its_deserializer_refuses(cluster: ReaderCluster) -> None:
    def strict(topic: str, data: bytes) -> int:
        number = int(data)
        if number == 7:
            raise ValueError("seven")
        return number

    reader = member(cluster, value_deserializer=strict)
    reader.core.assign([T0])
    assert offsets(read(reader, 7)) == list(range(7))
    error = failure(reader)
    assert isinstance(error, RecordDeserializationError)
    assert (error.topic_partition, error.offset, error.part) == (T0, 7, "value")
    assert isinstance(error.__cause__, ValueError)
    reader.core.seek(T0, error.next_offset)
    rest = read(reader, 12)
    assert [each.value for each in rest] == list(range(8, 20))


# --- sessions and buffers ------------------------------------------------------------------------


def test_sessions_carry_only_what_changed(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0, T1])
    read(reader, 20)
    reader.loop.advance(3_000)
    last = [each for each in cluster.fetches if each.session_id][-1]
    assert last.session_epoch > 1
    assert last.topics == []
    cluster.fill("t", 0, 1)
    assert offsets(read(reader, 1)) == [20]


def test_a_forgotten_session_is_begun_anew(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    reader.loop.advance(1_000)
    cluster.sessions.clear()
    cluster.fill("t", 0, 5)
    assert offsets(read(reader, 5)) == list(range(20, 25))


def test_a_broker_without_sessions_is_asked_in_full(cluster: ReaderCluster) -> None:
    cluster.grants_sessions = False
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    cluster.fill("t", 0, 5)
    assert offsets(read(reader, 5)) == list(range(20, 25))
    assert all(each.session_id == 0 and each.session_epoch == 0 for each in cluster.fetches)


def test_what_is_fetched_ahead_is_bounded(cluster: ReaderCluster) -> None:
    for _ in range(40):
        cluster.fill("t", 0, 10, value_size=1_000)
    limit = 30_000
    reader = member(cluster, max_partition_fetch_bytes=limit)
    reader.core.assign([T0])
    reader.loop.run(reader.poll(500, 1))
    reader.loop.advance(10_000)
    state = reader.core.state(T0)
    # The twin answers three batches at once, 31 kB, whatever it is asked for.
    assert state.buffered_bytes <= limit + 40_000
    assert len(read(reader, 419)) == 419
    assert reader.core.fetcher._buffered_bytes == state.buffered_bytes


def test_the_closest_replica_is_read_until_it_fails(cluster: ReaderCluster) -> None:
    """KIP-392: the leader names a follower, which serves what it has."""
    asked: list[int] = []

    def follower(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, FetchRequest) or not request.rack_id:
            return None
        asked.append(broker.node_id)
        if broker.node_id == 1 and cluster.topics["t"].partitions[0].leader == 1 and helpful:
            handler = cluster.handlers[FetchRequest]
            del handler
        return None

    helpful = True
    read_one = cluster._read_one

    def preferring(broker, place, offset, epoch, endpoints):  # type: ignore[no-untyped-def]
        answer = read_one(cluster.brokers[1], place, offset, epoch, endpoints)
        if broker.node_id == 1 and helpful:
            answer.preferred_read_replica = 2
            answer.records = None
        return answer

    cluster._read_one = preferring  # type: ignore[method-assign]
    cluster.hooks.append(follower)
    reader = member(cluster, client_rack="r2")
    reader.core.assign([T0])
    assert offsets(read(reader, 20)) == list(range(20))
    assert asked[0] == 1
    assert set(asked[1:]) == {2}
    helpful = False
    cluster.brokers[2].stop()
    cluster.fill("t", 0, 3)
    assert offsets(read(reader, 3)) == [20, 21, 22]
    assert asked[-1] == 1


def test_a_refusal_that_does_not_pass_is_raised(cluster: ReaderCluster) -> None:
    read_one = cluster._read_one

    def refusing(broker, place, offset, epoch, endpoints):  # type: ignore[no-untyped-def]
        answer = read_one(broker, place, offset, epoch, endpoints)
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
        return answer

    cluster._read_one = refusing  # type: ignore[method-assign]
    reader = member(cluster)
    reader.core.assign([T0])
    error = failure(reader)
    assert isinstance(error, BrokerError)
    assert error.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_wakeup_ends_the_poll_that_waits_or_the_next(cluster: ReaderCluster) -> None:
    reader = member(cluster, auto_offset_reset="latest")
    reader.core.assign([T0])
    cluster.loop.call_at(cluster.loop.now_ms() + 700, reader.core.user.wakeup)
    began = cluster.loop.now_ms()
    with pytest.raises(WakeupError):
        cluster.loop.run(reader.poll(60_000))
    assert cluster.loop.now_ms() - began < 1_000
    reader.core.user.wakeup()
    with pytest.raises(WakeupError):
        cluster.loop.run(reader.poll(0))
    assert cluster.loop.run(reader.poll(0)) == []


# --- offsets -------------------------------------------------------------------------------------


def test_offsets_by_time_and_ends(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    find = reader.core.find_offsets
    found = reader.loop.run(find({T0: EPOCH_MS + 75, T1: 0}, 5_000))
    assert found[T1] is None
    assert found[T0] is not None
    assert (found[T0].offset, found[T0].timestamp) == (8, EPOCH_MS + 80)
    ends = reader.loop.run(find({T0: -1, T1: -1}, 5_000))
    assert [each and each.offset for each in ends.values()] == [20, 0]


def test_a_partition_that_is_not_there(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    with pytest.raises((BrokerError, TimedOutError)):
        reader.loop.run(reader.core.find_offsets({TopicPartition("t", 9): -1}, 2_000))


def test_settings_that_exclude_each_other(cluster: ReaderCluster) -> None:
    for wrong in (
        {"group_id": ""},
        {"group_instance_id": "i"},
        {"group_id": "g", "session_timeout_ms": 1_000, "heartbeat_interval_ms": 1_000},
        {"group_id": "g", "partition_assignment_strategy": "range,range"},
        {"partition_assignment_strategy": "best"},
        {"auto_offset_reset": "by_duration:P1M"},
        {"auto_offset_reset": "sometimes"},
        {"isolation_level": "serializable"},
    ):
        with pytest.raises(ConfigError):
            member(cluster, **wrong)
    with pytest.raises(ConfigError, match=r"group\.id"):
        member(cluster).core.subscribe(["t"], None)


def test_a_session_answer_of_another_session_is_not_used(cluster: ReaderCluster) -> None:
    reader = member(cluster)
    reader.core.assign([T0])
    read(reader, 20)
    sent = 0

    def strange(broker: TwinBroker, request: Request) -> Response | None:
        nonlocal sent
        if isinstance(request, FetchRequest) and request.session_epoch > 0 and sent == 0:
            sent += 1
            return FetchResponse(session_id=request.session_id + 77, responses=[])
        return None

    cluster.hooks.append(strange)
    cluster.fill("t", 0, 5)
    assert offsets(read(reader, 5)) == list(range(20, 25))
    assert sent == 1


def test_a_message_of_an_old_format_is_told_and_can_be_passed(cluster: ReaderCluster) -> None:
    batches = cluster.topics["t"].partitions[0].batches
    data = bytearray(batches[1])
    data[16] = 7
    batches[1] = bytes(data)
    reader = member(cluster)
    reader.core.assign([T0])
    assert offsets(read(reader, 5)) == list(range(5))
    error = failure(reader)
    assert isinstance(error, CorruptRecordError)
    assert error.offset == 5
    reader.core.seek(T0, 10)
    assert offsets(read(reader, 10)) == list(range(10, 20))


def test_a_full_partition_does_not_wait_for_the_others(cluster: ReaderCluster) -> None:
    """A broker that holds a request of the idle partition cannot be asked for the full one."""
    cluster.topics["t"].partitions[1].leader = 1
    for _ in range(40):
        cluster.fill("t", 0, 10, value_size=1_000)
    reader = member(cluster, max_partition_fetch_bytes=30_000)
    reader.core.assign([T0, T1])
    reader.loop.run(reader.poll(500, 1))
    before = len(cluster.fetches)
    reader.loop.advance(20_000)
    waits = [each.max_wait_ms for each in cluster.fetches[before:]]
    assert [wait for wait in waits if wait < 500][:4] == [5, 10, 20, 40]
    assert len(waits) < 100, "nor is the broker asked all the time"
    began = reader.loop.now_ms()
    assert len(read(reader, 419)) == 419
    assert reader.loop.now_ms() - began < 2_000
