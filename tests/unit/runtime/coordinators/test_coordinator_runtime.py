from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.coordinator.scene import subscription
from tests.unit.runtime.coordinator_site import Site

from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.records import offset_commit_record
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.topic import TopicId
from millstream.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from millstream.protocol.messages.heartbeat import HeartbeatRequest
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.control import ControlType, EndTransactionMarker, MarkerBatch
from millstream.runtime.replicas.committed_appends import append_internal
from millstream.storage.file_slice import FileSlice

OpenSite = Callable[..., Site]
PROTOCOL = JoinGroupRequestProtocol(name="range", metadata=subscription("t"))


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[OpenSite]:
    sites: list[Site] = []

    def open_(**options: object) -> Site:
        for site in sites:
            site.close()
        sites.clear()
        sites.append(Site(tmp_path, **options))  # type: ignore[arg-type]
        return sites[0]

    yield open_
    for site in sites:
        site.offload.held = False
        site.offload.release()
        site.close()


def commit(
    site: Site, offset: int, *, group_id: str = "g", topic: str = "t", metadata: str = ""
) -> Deferred[OffsetCommitResponse]:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return site.groups.commit_offsets(request, 9)


def offsets(site: Site, group_id: str = "g") -> dict[str, int]:
    reply = site.groups.fetch_offsets(
        OffsetFetchRequestGroup(group_id=group_id, topics=None), require_stable=False
    )
    return {t.name: t.partitions[0].committed_offset for t in reply.result().topics}


def error_of(reply: Deferred[object] | Deferred[OffsetCommitResponse]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        reply.result()
    return raised.value.error


def join(site: Site, member_id: str = "") -> Deferred[JoinGroupResponse]:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[PROTOCOL],
    )
    reply = site.groups.join_group(request, Caller("c", "/h", 3))
    site.clock.settle()
    return reply


def sync(site: Site, member_id: str, generation_id: int = 1) -> Deferred[SyncGroupResponse]:
    request = SyncGroupRequest(
        group_id="g", generation_id=generation_id, member_id=member_id, assignments=[]
    )
    return site.groups.sync_group(request)


def batches_in(site: Site, index: int = 0) -> list[int]:
    """Return the number of records of each batch in a partition."""
    log = site.partitions.get("__consumer_offsets", index).log
    read = log.reader.read(
        0, max_bytes=1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True
    )
    assert isinstance(read.records, FileSlice)
    return [batch.count for batch in iter_batches(read.records.read())]


# Answers and commits


def test_a_commit_is_answered_once_it_is_in_the_log(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"flush.policy": "os"})
    reply = commit(site, 5)
    assert not reply.done
    site.clock.run_once()
    assert reply.result().topics[0].partitions[0].error_code == 0
    assert offsets(site) == {"t": 5}


def test_commits_of_one_turn_go_in_one_batch(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"flush.policy": "os"})
    replies = [commit(site, n, group_id=f"g{n}") for n in range(10)]
    site.clock.run_once()
    assert all(reply.done for reply in replies)
    assert batches_in(site) == [10]


def test_commits_that_come_while_a_write_is_on_its_way_share_the_next(
    open_site: OpenSite,
) -> None:
    site = open_site(topic_settings={"flush.policy": "ack"})
    site.offload.held = True
    first = commit(site, 1)
    site.clock.settle()
    later = [commit(site, n) for n in range(2, 6)]
    site.clock.settle()
    assert not first.done
    assert batches_in(site) == [1]
    site.offload.release()
    assert first.done
    site.clock.settle()
    assert batches_in(site) == [1, 4]
    assert not any(reply.done for reply in later)
    site.offload.release()
    assert all(reply.done for reply in later)


def test_a_read_waits_for_what_it_rests_on(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"flush.policy": "ack"})
    site.offload.held = True
    commit(site, 1)
    site.clock.settle()
    reply = site.groups.fetch_offsets(
        OffsetFetchRequestGroup(group_id="g", topics=None), require_stable=False
    )
    assert not reply.done
    site.offload.release()
    assert reply.result().topics[0].partitions[0].committed_offset == 1


def test_a_batch_keeps_to_the_topics_limit(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"max.message.bytes": "2000"})
    for number in range(10):
        commit(site, number, group_id=f"g{number}", metadata="m" * 400)
    site.clock.settle()
    counts = batches_in(site)
    assert sum(counts) == 10
    assert len(counts) > 2


def test_a_commit_that_no_batch_can_hold_changes_nothing(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"max.message.bytes": "2000"})
    reply = commit(site, 1, metadata="m" * 2000)
    assert error_of(reply) is ErrorCode.UNKNOWN_SERVER_ERROR
    site.clock.settle()
    assert offsets(site) == {}


def test_what_is_not_committed_in_time_is_refused_and_no_more_is_begun(
    open_site: OpenSite,
) -> None:
    site = open_site(topic_settings={"flush.policy": "ack"})
    site.offload.held = True
    reply = commit(site, 1)
    site.clock.advance(4_999)
    assert not reply.done
    site.clock.advance(1)
    assert error_of(reply) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(commit(site, 2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    site.offload.release()
    assert offsets(site) == {"t": 1}


def test_a_member_that_is_not_listened_to_does_not_expire(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"flush.policy": "ack"})
    first = join(site)
    site.clock.advance(6_000)
    member_id = first.result().member_id
    sync(site, member_id)
    site.clock.settle()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert site.groups.heartbeat(request).result().error_code == 0
    site.offload.held = True
    commit(site, 1, group_id="other")
    site.clock.advance(5_000)
    assert error_of(site.groups.heartbeat(request)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    site.clock.advance(3_600_000)
    site.offload.held = False
    site.offload.release()
    commit(site, 2, group_id="other")
    site.clock.advance(4_999)
    assert site.groups.heartbeat(request).result().error_code == 0
    site.clock.advance(10_000)
    assert site.groups.describe_group("g", 6).result().group_state == "Empty"


def test_a_failing_disk_is_not_the_coordinator_any_more(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    partition = site.partitions.get("__consumer_offsets", 0)

    def refuse(*_args: object, **_options: object) -> None:
        raise StorageError(partition.log.log_directory, "no space left")

    monkeypatch.setattr(type(partition.log.appender), "append_as_leader", refuse)
    reply = commit(site, 2)
    site.clock.settle()
    assert error_of(reply) is ErrorCode.NOT_COORDINATOR
    assert error_of(commit(site, 3)) is ErrorCode.NOT_COORDINATOR
    assert site.failed_directories


def test_a_failed_write_is_taken_back(open_site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    appender_type = type(site.partitions.get("__consumer_offsets", 0).log.appender)

    def refuse(*_args: object, **_options: object) -> None:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)

    with monkeypatch.context() as patch:
        patch.setattr(appender_type, "append_as_leader", refuse)
        reply = commit(site, 2)
        site.clock.settle()
    assert error_of(reply) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert offsets(site) == {"t": 1}
    commit(site, 3)
    site.clock.settle()
    assert offsets(site) == {"t": 3}


# Loading


def test_offsets_are_there_after_a_restart(open_site: OpenSite) -> None:
    site = open_site(partition_count=5)
    for number in range(40):
        commit(site, number, group_id=f"g{number % 20}")
        site.clock.settle()
    site = open_site(partition_count=5)
    site.groups.start()
    assert [offsets(site, f"g{n}") for n in range(20)] == [{"t": 20 + n} for n in range(20)]
    assert sum(len(reply.result()) for reply in site.groups.list_groups(states=[], types=[])) == 20


def test_a_coordinator_that_loads_says_so(open_site: OpenSite) -> None:
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    site = open_site()
    site.offload.held = True
    site.groups.start()
    assert error_of(commit(site, 2)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (listing,) = site.groups.list_groups(states=[], types=[])
    assert error_of(listing) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[arg-type]
    site.offload.held = False
    site.offload.release()
    assert offsets(site) == {"t": 1}


def test_what_was_loaded_but_is_not_committed_holds_answers_back(open_site: OpenSite) -> None:
    site = open_site(topic_settings={"flush.policy": "ack"})
    site.offload.held = True
    record = offset_commit_record(
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitValue(offset=5, metadata="", commit_timestamp=0),
    )
    builder = BatchBuilder()
    builder.append(0, *record.encode())
    append_internal(site.partitions.get("__consumer_offsets", 0), builder.build())
    site.clock.settle()
    site.groups.start()
    site.offload.release("coordinator-load")
    reply = site.groups.fetch_offsets(
        OffsetFetchRequestGroup(group_id="g", topics=None), require_stable=False
    )
    assert not reply.done
    site.offload.release()
    assert reply.result().topics[0].partitions[0].committed_offset == 5


def test_an_empty_partition_is_served_at_once(open_site: OpenSite) -> None:
    site = open_site()
    site.offload.held = True
    assert offsets(site) == {}


def test_a_topic_deleted_while_loading_takes_its_offsets_along(open_site: OpenSite) -> None:
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    site = open_site()
    image = site.create("t", 1, TopicId(bytes(16)))
    site.offload.held = True
    site.groups.start()
    site.groups.topic_deleted(image)
    site.offload.held = False
    site.offload.release()
    site.clock.settle()
    assert offsets(site) == {}
    site = open_site()
    site.groups.start()
    assert offsets(site) == {}


def test_a_large_partition_is_loaded_in_slices(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.runtime.coordinators.coordinator_loader.SLICE_BYTES", 300)
    site = open_site()
    for number in range(50):
        commit(site, number, topic=f"t{number}")
        site.clock.settle()
    site = open_site()
    site.offload.held = True
    site.groups.start()
    rounds = 0
    while error := _load_error(site):
        assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        site.offload.release()
        rounds += 1
    assert rounds > 10
    assert offsets(site) == {f"t{n}": n for n in range(50)}


def _load_error(site: Site) -> ErrorCode | None:
    try:
        offsets(site)
    except KafkaError as error:
        return error.error
    return None


def test_transactions_in_the_log_count_when_committed(open_site: OpenSite) -> None:
    site = open_site()
    partition = site.partitions.get("__consumer_offsets", 0)
    commit(site, 1, topic="before")
    site.clock.settle()
    key = bytes.fromhex("0001 0001 67")
    for producer_id, topic, outcome in [
        (7, b"in", ControlType.COMMIT),
        (8, b"out", ControlType.ABORT),
    ]:
        builder = BatchBuilder(
            BatchOptions(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
        )
        name = len(topic).to_bytes(2, "big") + topic
        value = bytes.fromhex("0000 0000000000000009 0000 0000000000000009")
        builder.append(0, key + name + bytes(4), value)
        append_internal(partition, builder.build())
        site.clock.settle()
        marker = MarkerBatch.of(
            EndTransactionMarker(outcome, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
        )
        partition.log.appender.append_marker(marker, leader_epoch=0, now_ms=0)
    site = open_site()
    site.groups.start()
    assert offsets(site) == {"before": 1, "in": 9}


def test_a_record_that_cannot_be_read_stops_the_shard(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = open_site()
    builder = BatchBuilder()
    builder.append(0, bytes.fromhex("0001 00"), b"?")
    append_internal(site.partitions.get("__consumer_offsets", 0), builder.build())
    site.clock.settle()
    site = open_site()
    site.groups.start()
    assert error_of(commit(site, 1)) is ErrorCode.NOT_COORDINATOR
    assert "cannot load the coordinator of __consumer_offsets-0" in caplog.text


@pytest.mark.parametrize(("error", "is_of_disk"), [(OSError(5, "no"), True), (KeyError(0), False)])
def test_a_read_that_fails_while_records_are_loaded_stops_the_shard(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch, error: Exception, is_of_disk: bool
) -> None:
    """A shard that loads for ever would keep its clients asking for ever."""
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    site = open_site()
    site.offload.held = True
    site.groups.start()
    assert error_of(commit(site, 2)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def read(_piece: FileSlice) -> bytes:
        raise error

    monkeypatch.setattr(FileSlice, "read", read)
    site.offload.held = False
    site.offload.release()
    assert error_of(commit(site, 3)) is ErrorCode.NOT_COORDINATOR
    assert bool(site.failed_directories) == is_of_disk


# Groups


def test_a_group_forms_by_the_clock_and_survives_a_restart(open_site: OpenSite) -> None:
    site = open_site()
    first, second = join(site), join(site)
    assert not first.done
    site.clock.advance(6_000)
    leader, follower = first.result().member_id, second.result().member_id
    waiting = sync(site, follower)
    own = sync(site, leader)
    assert not own.done
    site.clock.settle()
    assert own.result().error_code == waiting.result().error_code == 0
    site = open_site()
    site.groups.start()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=follower)
    assert site.groups.heartbeat(request).result().error_code == 0
    site.clock.advance(10_000)
    assert site.groups.describe_group("g", 6).result().group_state == "Empty"


def test_stopping_answers_everybody_who_waits(open_site: OpenSite) -> None:
    site = open_site()
    reply = join(site)
    site.groups.stop()
    assert reply.result().error_code == ErrorCode.NOT_COORDINATOR.code


def test_expired_offsets_go_when_the_broker_looks(open_site: OpenSite) -> None:
    site = open_site(settings={"offsets.retention.minutes": "1"})
    site.groups.start()
    commit(site, 1)
    site.clock.advance(59_000)
    assert offsets(site) == {"t": 1}
    site.clock.advance(600_000)
    assert offsets(site) == {}
    assert site.groups.describe_group("g", 5).result().group_state == "Dead"


# Who coordinates


def test_without_the_topic_nobody_coordinates(open_site: OpenSite) -> None:
    site = open_site(creates=False)
    assert error_of(commit(site, 1)) is ErrorCode.NOT_COORDINATOR
    assert site.groups.list_groups(states=[], types=[]) == []


def test_a_group_belongs_to_the_partition_of_its_hash(open_site: OpenSite) -> None:
    site = open_site(partition_count=50)
    assert site.groups.partition_for("my-group") == 12
    commit(site, 1, group_id="my-group")
    site.clock.settle()
    assert batches_in(site, 12) == [1]


def test_a_topic_made_anew_begins_anew(open_site: OpenSite) -> None:
    site = open_site()
    commit(site, 1)
    site.clock.settle()
    image = site.metadata.topic("__consumer_offsets")
    assert image is not None
    site.metadata.remove("__consumer_offsets")
    site.partitions.topic_deleted(image)
    site.groups.topic_deleted(image)
    site.create("__consumer_offsets", 1, TopicId(bytes(range(16, 32))))
    assert offsets(site) == {}
