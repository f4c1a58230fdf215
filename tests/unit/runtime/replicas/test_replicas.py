"""Replication over three brokers in one process: what is acknowledged, who is in sync, what comes
back after a fault. The controller is scripted, time moves by hand.
"""

from __future__ import annotations

import logging

import pytest
from tests.unit.runtime.log_site import Outcomes, batch
from tests.unit.runtime.replica_site import LAG_MS, TOPIC, TOPIC_ID, ClusterSite

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import CorruptLogError, ErrorCode
from millstream.model.metadata_store import SessionEvent
from millstream.model.topic import TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.runtime.replicas.replica_manager import CONTACT_INTERVAL_MS
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.storage.follower_appender import FollowerAppender

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def fetched(
    site: ClusterSite, broker: int, offset: int = 0, *, rack: str = "", version: int = 16
) -> PartitionData:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        rack_id=rack,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=TOPIC if version < 13 else "",
                topic_id=TOPIC_ID,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    response = site[broker].ask(ApiKey.FETCH, version, request).result()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def bytes_of(data: PartitionData) -> bytes:
    records = data.records
    if not records:
        return b""
    return bytes(records) if isinstance(records, bytes | memoryview) else records.read()  # type: ignore[union-attr]


def ends(site: ClusterSite) -> list[int]:
    return [site[each].end for each in (1, 2, 3)]


def produce_request(*topics: str, acks: int) -> ProduceRequest:
    """One record for partition 0 of each topic."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=each,
                partition_data=[PartitionProduceData(index=0, records=batch(b"v").buffer)],
            )
            for each in topics
        ],
    )


def errors_of(produced: Deferred[Response]) -> dict[str, ErrorCode]:
    response = produced.result()
    assert isinstance(response, ProduceResponse)
    return {
        topic.name: ErrorCode.of(topic.partition_responses[0].error_code)
        for topic in response.responses
    }


# Acknowledgements


def test_acks_all_waits_for_every_replica_in_sync() -> None:
    site = ClusterSite()
    produced = site[1].produce(b"one")
    assert not produced.done
    site.settle()
    assert produced.error is ErrorCode.NONE
    assert ends(site) == [1, 1, 1]
    assert site[1].high_watermark == 1
    assert site[1].values() == site[2].values() == site[3].values()


def test_acks_one_does_not_wait_for_followers() -> None:
    site = ClusterSite()
    site.cut_off(1)
    produced = site[1].produce(b"one", acks=1)
    assert produced.error is ErrorCode.NONE
    assert site[1].high_watermark == 0
    assert bytes_of(fetched(site, 1)) == b""


def test_a_time_out_is_for_replicas_and_not_for_the_leaders_own_disk() -> None:
    """acks=1 has none in Kafka; a write that is on its way to the disk must not be sent again."""
    site = ClusterSite(log_flush_policy="ack")
    site[1].offload.held = True
    produced = site[1].produce(b"one", acks=1, timeout_ms=0)
    site.advance(1_000)
    assert not produced.done
    site[1].offload.held = False
    site[1].offload.release()
    site.settle()
    assert produced.error is ErrorCode.NONE


def test_who_leads_now_is_told_with_a_write_whose_leadership_ended() -> None:
    site = ClusterSite(log_flush_policy="ack")
    for acks in (1, -1):
        leader = site.controller.state.leader
        site[leader].offload.held = True
        produced = site[leader].produce(b"one", acks=acks)
        site.controller.elect(leader + 1)
        assert produced.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produced.answer.current_leader.leader_id == leader + 1
        site[leader].offload.held = False
        site[leader].offload.release()
        site.settle()


def test_acks_one_under_the_policy_ack_waits_for_the_own_disk() -> None:
    site = ClusterSite(log_flush_policy="ack")
    site[1].offload.held = True
    produced = site[1].produce(b"one", acks=1)
    site.settle()
    assert not produced.done
    site[1].offload.release("flush")
    assert produced.error is ErrorCode.NONE


def test_under_the_policy_ack_a_follower_tells_what_it_has_flushed() -> None:
    site = ClusterSite(log_flush_policy="ack")
    site[2].offload.held = True
    produced = site[1].produce(b"one")
    site.settle()
    assert site[2].end == 1
    assert not produced.done
    site[2].offload.release("flush")
    site.settle()
    assert produced.error is ErrorCode.NONE


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_a_new_leadership_hears_of_a_follower_what_that_has_flushed(leader: int) -> None:
    """Broker 3 follows on, or led before: what it has appended is not on its disk."""
    site = ClusterSite(log_flush_policy="ack")
    before = 3 if leader != 3 else 1
    if before == 3:
        site.controller.elect(3)
        site.advance(2_000)
    behind = 3 if leader != 3 else 2
    site[behind].offload.held = True
    produced = site[before].produce(b"one", acks=1)
    site.settle()
    site.advance(1_000)
    assert site[behind].end == 1
    site.controller.elect(leader)
    site.advance(2_000)
    leading = site[leader].partition.leading
    assert leading is not None
    known = leading.machine.progress[site[behind].broker_id]
    assert known.log_end_offset < 1, "its disk does not have the record"
    assert site[leader].high_watermark == 0
    site[behind].offload.held = False
    site[behind].offload.release("flush")
    site.advance(2_000)
    assert known.log_end_offset == 1
    assert site[leader].high_watermark == 1
    assert produced.done


def test_a_flush_that_an_old_leader_began_flushes_nothing_of_the_next_one() -> None:
    """Whatever the disks do, a leader never hears more of a follower than that one has flushed."""
    site = ClusterSite(log_flush_policy="ack")
    site.controller.elect(2)
    site[1].offload.held = site[2].offload.held = True
    site.cut_off(2)
    for each in range(4):
        site[2].produce(b"lost %d" % each, acks=1)
    site.settle()
    site.controller.elect(1, 1, 3)
    site.heal()
    produced = [site[1].produce(b"kept %d" % each) for each in range(4)]
    site.advance(2_000)
    assert site[1].partition.leading is not None
    known = site[1].partition.leading.machine.progress[site[2].broker_id]
    assert known.log_end_offset == -1, "what it had written is not on its disk"
    was_cut = False
    for _ in range(8):
        assert known.log_end_offset <= site[2].partition.log.recovery_point
        for each in (1, 2):
            site[each].offload.release("flush")
        site.advance(2_000)
        was_cut |= site[2].end == 0
    assert was_cut
    assert known.log_end_offset == 4
    assert [each.error for each in produced] == [ErrorCode.NONE] * 4


def test_a_follower_without_records_beyond_its_leaders_end_comes_back_to_it() -> None:
    """Its log began anew where that of the leader before did; then one was elected that lacked all
    that. What the next leader writes below must not be left out of it.
    """
    site = ClusterSite()
    site[1].produce(*(b"%d" % each for each in range(10)))
    site.advance(2_000)
    site.controller.elect(1, 1)
    site.kill(3)
    delete_records_before(site[1].partition, -1)
    site[3].files = type(site[3].files)()
    site.restart(3)
    site.advance(2_000)
    kept = site[3].partition.log
    assert (kept.log_start_offset, kept.log_end_offset) == (10, 10)
    site.kill(1)
    site[2].partition.log.truncation.truncate_to(4, now_ms=0)
    site.controller.elect(2, 2)  # unclean
    site.advance(2_000)
    written = [site[2].produce(b"new %d" % each, acks=1) for each in range(8)]
    site.advance(5_000)
    assert [each.error for each in written] == [ErrorCode.NONE] * 8
    assert site[3].end == site[2].end == 12
    assert site[3].partition.log.log_start_offset == 4
    assert 3 in site.isr


def test_a_log_that_is_damaged_where_it_has_to_be_cut_does_not_hold_up_the_others() -> None:
    site = ClusterSite()
    site.create("other")
    site.controller.elect(2)
    site.create("other", leader=1, epoch=1)
    site.cut_off(2)
    for each in range(4):
        site[2].produce(b"lost %d" % each, acks=1)
    site.settle()
    (name,) = [each.name for each in site[2].files.scan("/logs/t-0") if each.name.endswith(".log")]
    file = site[2].files.open(f"/logs/t-0/{name}")
    file.write_at(8, b"\x00\x00\x00\x03")  # the length of the first batch
    site.controller.elect(1, 1, 3)
    site.heal()
    site[1].produce(b"kept")
    site.advance(3_000)
    assert site[2].end == 4
    produced = site[1].produce(b"another", topic="other")
    site.advance(3_000)
    assert produced.error is ErrorCode.NONE
    found = site[2].partitions.replica("other", 0)
    assert found is not None
    assert found.log.log_end_offset == 1


def test_who_has_a_leader_has_not_followed_it_yet() -> None:
    """A log that was damaged may lead once it has caught up, and not before."""
    site = ClusterSite()
    site[1].produce(b"one")
    site.advance(1_000)
    site.kill(2)
    site.cut_off(2)
    site.restart(2)
    site.advance(1_000)
    assert not site[2].partition.has_followed
    site.heal()
    site.advance(3_000)
    assert site[2].partition.has_followed


def test_writes_of_one_connection_are_committed_in_order() -> None:
    site = ClusterSite()
    produced = [site[1].produce(b"%d" % each) for each in range(5)]
    site.settle()
    assert [each.answer.base_offset for each in produced] == [0, 1, 2, 3, 4]
    assert ends(site) == [5, 5, 5]


def test_too_few_in_sync_refuses_acks_all_before_it_is_written() -> None:
    site = ClusterSite(min_isr=2)
    site.controller.elect(1, 1)
    site.controller.refusal = ErrorCode.INELIGIBLE_REPLICA
    assert site[1].produce(b"one").error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert site[1].end == 0
    assert site[1].produce(b"one", acks=1).error is ErrorCode.NONE
    assert site[1].end == 1
    assert site[1].high_watermark == 0


def test_clients_do_not_write_internal_topics() -> None:
    site = ClusterSite()
    site.create("__consumer_offsets")
    refused = site[1].produce(acks=1, topic="__consumer_offsets")
    assert refused.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert site[1].partitions.get("__consumer_offsets", 0).log_end_offset == 0


def test_a_write_that_is_not_committed_in_time_says_so() -> None:
    site = ClusterSite()
    site.cut_off(1)
    produced = site[1].produce(b"one", timeout_ms=1000)
    site.advance(999)
    assert not produced.done
    site.advance(1)
    assert produced.error is ErrorCode.REQUEST_TIMED_OUT


# Followers come and go


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back() -> None:
    site = ClusterSite()
    site.cut_off(3)
    produced = site[1].produce(b"one", timeout_ms=60_000)
    site.advance(LAG_MS)
    assert not produced.done
    site.advance(LAG_MS)
    assert site.isr == (1, 2)
    assert produced.error is ErrorCode.NONE
    site.heal()
    site.advance(35_000)  # the fetch that was lost is given up
    assert site.isr == (1, 2, 3)
    assert ends(site) == [1, 1, 1]


def test_a_follower_that_was_killed_catches_up_and_rejoins() -> None:
    site = ClusterSite()
    site[1].produce(b"one")
    site.settle()
    site.kill(3)
    site[1].produce(b"two")
    site.advance(2 * LAG_MS)
    assert site.isr == (1, 2)
    site.restart(3)
    site.advance(1000)
    assert site.isr == (1, 2, 3)
    assert site[3].values() == site[1].values()


def test_a_leader_that_is_cut_off_commits_nothing_with_min_isr_two() -> None:
    site = ClusterSite(min_isr=2)
    site.cut_off(1)
    produced = site[1].produce(b"one", timeout_ms=60_000)
    site.advance(2 * LAG_MS + 1)
    assert site.isr == (1,)
    assert not produced.done
    assert site[1].high_watermark == 0
    assert site[1].produce(b"two").error is ErrorCode.NOT_ENOUGH_REPLICAS
    site.heal()
    site.advance(35_000)
    assert site.isr == (1, 2, 3)
    assert produced.error is ErrorCode.NONE


# The leader goes


def test_the_next_leader_has_what_was_acknowledged_and_commits_the_tail() -> None:
    site = ClusterSite()
    first = site[1].produce(b"one")
    site.settle()
    assert first.error is ErrorCode.NONE
    site.kill(1)
    site.controller.elect(2, 2, 3)
    site.settle()
    assert bytes_of(fetched(site, 2)) == site[2].values()[0]
    second = site[2].produce(b"two")
    site.advance(1000)
    assert second.error is ErrorCode.NONE
    assert second.answer.base_offset == 1


def test_an_old_leader_cuts_what_nobody_else_has() -> None:
    """acks=1 on a leader that is replaced is lost, and only that (KIP-101)."""
    site = ClusterSite()
    site[1].produce(b"kept")
    site.settle()
    site.cut_off(1)
    lost = site[1].produce(b"lost", acks=1)
    assert lost.error is ErrorCode.NONE
    site.kill(1)
    site.heal()
    site.controller.elect(2, 2, 3)
    site[2].produce(b"other")
    site.advance(1000)
    site.restart(1)
    site.advance(1000)
    assert site.isr == (1, 2, 3)
    assert site[1].values() == site[2].values() == site[3].values()


def test_a_leader_that_resigns_fails_its_waiters_and_follows() -> None:
    site = ClusterSite()
    site.cut_off(1)
    waiting = site[1].produce(b"lost", timeout_ms=60_000)
    site.heal()
    site.controller.elect(2)
    assert waiting.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.answer.current_leader.leader_id == 2
    assert site[1].produce(b"more").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.advance(40_000)
    assert site[1].values() == site[2].values()


def test_a_new_leader_epoch_of_the_same_leader_keeps_who_waits() -> None:
    site = ClusterSite()
    site.cut_off(3)
    waiting = site[1].produce(b"one", timeout_ms=60_000)
    site.settle()
    site.controller.elect(1, 1, 2)
    site.advance(1000)
    assert waiting.error is ErrorCode.NONE
    assert site[1].partition.leader_epoch == 1


def test_a_late_push_of_older_state_changes_nothing() -> None:
    site = ClusterSite()
    older = site.controller.state
    site.controller.elect(2)
    newest = site.controller.state
    site.controller.state = older
    site.push()
    assert site[1].produce().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.controller.state = newest
    assert not site[2].produce().done


def test_a_follower_that_hears_first_asks_again_until_the_leader_has_heard() -> None:
    site = ClusterSite()
    site.controller.write(leader=2, leader_epoch=1)
    site.push(1, 3)
    site.advance(300)
    site.push(2)
    produced = site[2].produce(b"one")
    site.advance(2_000)
    assert produced.error is ErrorCode.NONE
    assert ends(site) == [1, 1, 1]


def test_a_follower_refused_for_long_reads_the_stored_state() -> None:
    site = ClusterSite()
    site.controller.write(leader=2, leader_epoch=1)
    site.push(1, 2)
    # Broker 3 never hears of it and goes on asking broker 1; nor is anything pushed later.
    site.controller.refusal = ErrorCode.INELIGIBLE_REPLICA
    site.advance(25_000)
    assert site.controller.reads
    produced = site[2].produce(b"one")
    site.advance(1000)
    assert produced.error is ErrorCode.NONE


def test_the_high_watermark_does_not_go_back_over_a_change_of_leaders() -> None:
    site = ClusterSite()
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    known = site[2].high_watermark
    site.kill(1)
    site.controller.elect(2, 2, 3)
    assert site[2].high_watermark >= known
    site.advance(1000)
    assert site[2].high_watermark == 3


def test_a_new_leader_tells_no_end_until_it_knows_what_is_committed() -> None:
    """KIP-207."""
    site = ClusterSite()
    site.cut(1, 3)
    site[1].produce(b"one", timeout_ms=60_000)
    site.settle()
    assert (site[2].end, site[2].high_watermark) == (1, 0)
    site.kill(1)
    site.controller.elect(2, 2, 3)
    assert list_offset(site, 2).error_code == ErrorCode.OFFSET_NOT_AVAILABLE.code
    site.heal()
    site.advance(1000)
    assert list_offset(site, 2).offset == 1


def list_offset(site: ClusterSite, broker: int) -> object:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    response = site[broker].ask(ApiKey.LIST_OFFSETS, 7, request).result()
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


# The controller


def test_an_isr_that_may_have_been_written_is_waited_for() -> None:
    site = ClusterSite()
    site.cut_off(3)
    site.controller.answering = False
    waiting = site[1].produce(b"one", timeout_ms=120_000)
    site.advance(2 * LAG_MS)
    assert site.controller.proposals
    assert site[1].high_watermark == 0
    site.controller.answering = True
    site.advance(2_000)
    assert site.isr == (1, 2)
    assert waiting.error is ErrorCode.NONE


def test_proposals_carry_the_broker_epochs_that_were_seen() -> None:
    site = ClusterSite()
    site.kill(3)
    site[1].produce(b"one", timeout_ms=60_000)
    site.advance(2 * LAG_MS)
    site.restart(3)
    site.advance(1000)
    joined = site.controller.proposals[-1]
    assert dict(joined.isr) == {each: site[each].epoch for each in (1, 2, 3)}


# Reading from followers


def test_a_consumer_with_racks_reads_from_a_follower_what_is_committed() -> None:
    site = ClusterSite(replica_selector_class=RACK_AWARE)
    site[1].produce(b"one")
    site.advance(1000)
    assert bytes_of(fetched(site, 2)) == site[1].values()[0]
    site.cut(1, 3)
    site[1].produce(b"two", timeout_ms=60_000)
    site.settle()
    assert site[2].end == 2
    assert fetched(site, 2).high_watermark == 1
    assert bytes_of(fetched(site, 2, 1)) == b""


def test_a_consumer_without_racks_reads_from_the_leader_alone() -> None:
    site = ClusterSite()
    data = fetched(site, 2, version=10)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code


@pytest.mark.parametrize(("rack", "expected"), [("b", 2), ("c", 3), ("a", -1), ("z", -1)])
def test_the_leader_sends_a_consumer_to_the_replica_in_its_rack(rack: str, expected: int) -> None:
    site = ClusterSite(replica_selector_class=RACK_AWARE)
    site[1].produce(b"one")
    site.advance(1000)
    data = fetched(site, 1, rack=rack)
    assert data.preferred_read_replica == expected
    assert bool(bytes_of(data)) == (expected == -1)


def test_no_consumer_is_sent_to_a_replica_that_is_out_of_sync() -> None:
    """It may fall behind further and further, and its readers with it (KAFKA-14372)."""
    site = ClusterSite(replica_selector_class=RACK_AWARE)
    site[1].produce(b"one")
    site.advance(1000)
    site.cut_off(2)
    site[1].produce(b"two", acks=1)
    site.advance(2 * LAG_MS)
    assert 2 not in site.controller.state.isr
    data = fetched(site, 1, rack="b")
    assert data.preferred_read_replica == -1
    assert bytes_of(data)
    site.heal()
    site.advance(2 * LAG_MS)
    assert fetched(site, 1, rack="b").preferred_read_replica == 2


def test_without_a_selector_the_leader_serves_everybody() -> None:
    site = ClusterSite()
    site[1].produce(b"one")
    site.advance(1000)
    data = fetched(site, 1, rack="b")
    assert data.preferred_read_replica == -1
    assert bytes_of(data)


def test_a_follower_behind_its_leaders_log_start_begins_anew_there() -> None:
    site = ClusterSite()
    site.kill(3)
    site.advance(2 * LAG_MS)
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    site.controller.elect(1, 1, 2)
    site.advance(1000)
    delete_records_before(site[1].partition, 2)
    site.restart(3)
    site.advance(2_000)
    assert site[3].partition.log.log_start_offset == 2
    assert site[3].end == 3
    assert site.isr == (1, 2, 3)


def test_deleting_records_reaches_the_followers() -> None:
    site = ClusterSite()
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    delete_records_before(site[1].partition, 2)
    site.advance(1000)
    assert [site[each].partition.log.log_start_offset for each in (2, 3)] == [2, 2]


# Reassignment


def test_a_replica_that_was_moved_away_is_deleted() -> None:
    site = ClusterSite()
    site[1].produce(b"v")
    site.settle()
    site.controller.write(replicas=(1, 2), isr=(1, 2), leader_epoch=1)
    site.push()
    assert site[3].partitions.replica(TOPIC, 0) is None
    assert not site[3].files.exists("/logs/t-0")
    produced = site[1].produce(b"w")
    site.advance(1000)
    assert produced.error is ErrorCode.NONE


def test_a_partition_that_comes_new_does_not_wait_for_a_long_poll() -> None:
    site = ClusterSite()
    site.advance(100)  # the followers' fetches wait at broker 1
    site.create("second")
    produced = site[1].produce(b"one", topic="second")
    site.advance(50)
    assert produced.error is ErrorCode.NONE


def test_a_leader_that_no_controller_answers_reads_the_stored_state() -> None:
    """The controller is cut from a broker that another one has replaced."""
    site = ClusterSite()
    site.cut_off(1)
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    site[1].produce(b"lost", acks=1)
    site.controller.write(leader=2, isr=(2, 3), leader_epoch=1)
    site.push(2, 3)
    site.advance(3 * LAG_MS)
    assert site.controller.reads
    assert site[1].produce().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Damage and the disk


def test_a_log_damaged_in_the_middle_never_leads_and_is_fetched_again() -> None:
    site = ClusterSite()
    for value in (b"one", b"two", b"three"):
        site[1].produce(value)
        site.settle()
    site.kill(3)
    path = f"/logs/t-0/{0:020}.log"
    file = site[3].files.open(path)
    file.write_at(100, b"\xff\xff\xff\xff")
    site[3].start()
    site.controller.elect(3)
    produced = site[3].produce(b"four")
    assert produced.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.controller.elect(1)
    site.advance(40_000)
    assert site[3].values() == site[1].values()
    site.controller.elect(3)
    produced = site[3].produce(b"four")
    site.advance(1_000)
    assert produced.error is ErrorCode.NONE


def test_a_flush_of_a_leadership_gone_by_commits_nothing() -> None:
    site = ClusterSite(log_flush_policy="ack")
    site.controller.elect(1, 1)
    site.controller.refusal = ErrorCode.INELIGIBLE_REPLICA
    site.cut_off(1)
    site[1].offload.held = True
    waiting = site[1].produce(b"lost")
    site.settle()
    site.controller.elect(2, 2, 3)
    site[1].offload.held = False
    site[1].offload.release("flush")
    assert waiting.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site[1].high_watermark == 0


def test_what_a_role_has_not_flushed_counts_for_the_next_one_when_it_is() -> None:
    site = ClusterSite(log_flush_policy="ack")
    site[2].offload.held = True
    site[1].produce(b"not on the disk of 2")
    site.settle()
    assert (site[2].end, site[2].partition.flushes.local_end_offset) == (1, 0)
    before = site[2].partition
    site.controller.elect(2)
    assert site[2].partition is not before
    assert (site[2].end, site[2].partition.flushes.local_end_offset) == (1, 0)
    site[2].offload.held = False
    site[2].offload.release()
    site.advance(2_000)
    assert (site[2].partition.flushes.local_end_offset, site[2].high_watermark) == (1, 1)


def test_a_failed_disk_ends_a_leadership() -> None:
    site = ClusterSite(log_flush_policy="ack")

    def fail(step: str, path: str) -> None:
        if step == "sync":
            raise OSError(5, "sync fails", path)

    site[1].files.hook = fail
    produced = site[1].produce(b"one", acks=1)
    site.settle()
    assert produced.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert site[1].partitions.replica(TOPIC, 0) is None
    assert site[1].produce(b"two").error is ErrorCode.KAFKA_STORAGE_ERROR


def test_acks_one_is_answered_where_a_later_partition_of_the_request_fails_the_directory() -> None:
    """The first batch is written and waits for its flush when the second append meets EIO: both
    partitions lie in the directory that goes offline.
    """
    site = ClusterSite(log_flush_policy="ack")
    site.create("u")
    site[1].offload.held = True

    def fail(step: str, path: str) -> None:
        if step == "write" and path.startswith("/logs/u-0"):
            raise OSError(5, "write fails", path)

    site[1].files.hook = fail
    produced = site[1].ask(ApiKey.PRODUCE, 12, produce_request(TOPIC, "u", acks=1))
    site.settle()
    assert errors_of(produced) == {
        TOPIC: ErrorCode.KAFKA_STORAGE_ERROR,
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
    }


def test_a_role_that_has_ended_tells_whoever_asks_later() -> None:
    site = ClusterSite(log_flush_policy="ack")
    partition = site[1].partition
    leading = partition.leading
    assert leading is not None
    site.controller.elect(2)
    told = Outcomes()
    leading.wait_until_local(0, told.note("local "))
    leading.wait_until_deleted(5, told.note("deleted "))
    partition.wait_for_commit(0, told.note("committed "))
    assert told == [f"{each} NOT_LEADER_OR_FOLLOWER" for each in ("local", "deleted", "committed")]


def test_the_leader_remembers_a_bounded_number_of_batches_that_are_not_committed() -> None:
    site = ClusterSite(min_isr=3)
    site.cut_off(1)
    leading = site[1].partition.leading
    assert leading is not None
    for _ in range(1_100):
        assert site[1].produce(acks=1).error is ErrorCode.NONE
    assert site[1].high_watermark == 0
    assert len(leading._readable) <= 1_024
    site.heal()
    site.advance(30_000)
    assert site[1].high_watermark == 1_100


def test_a_cut_below_the_high_watermark_is_told_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unclean election loses what was committed; nobody may overlook it."""
    site = ClusterSite()
    site.kill(3)
    site.controller.elect(1, 1, 2)
    site[1].produce(b"committed")
    site.advance(1_000)
    site[3].start()
    site.cut_off(3)
    site.controller.elect(3, 3)
    site[3].produce(b"other")
    site.heal()
    site.advance(40_000)
    assert site[2].values() == site[3].values()
    replicas = site[2].partitions.replicas
    assert replicas is not None
    assert replicas.context.committed_cuts == 1
    assert "below the high watermark" in caplog.text


# Deleting records


def deletion(site: ClusterSite, offset: int) -> Deferred[Response]:
    topic = DeleteRecordsTopic(
        name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
    return site[1].ask(ApiKey.DELETE_RECORDS, 2, request)


def deleted(reply: Deferred[Response]) -> tuple[int, ErrorCode]:
    response = reply.result()
    assert isinstance(response, DeleteRecordsResponse)
    result = response.topics[0].partitions[0]
    return result.low_watermark, ErrorCode.of(result.error_code)


def test_a_deletion_is_answered_when_every_replica_has_followed() -> None:
    site = ClusterSite()
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    reply = deletion(site, 2)
    assert not reply.done
    site.advance(1_000)
    assert deleted(reply) == (2, ErrorCode.NONE)
    assert [site[each].partition.log.log_start_offset for each in (1, 2, 3)] == [2, 2, 2]


def test_a_deletion_does_not_wait_for_who_is_gone_and_not_for_ever() -> None:
    site = ClusterSite()
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    site.cut_off(3)
    late = deletion(site, 1)
    site.advance(5_000)
    assert deleted(late) == (-1, ErrorCode.REQUEST_TIMED_OUT)
    leading = site[1].partition.leading
    assert leading is not None
    assert not leading._deletions, "what is answered is kept no longer"
    site.kill(3)
    site.controller.elect(1, 1, 2)
    reply = deletion(site, 2)
    site.advance(1_000)
    assert deleted(reply) == (2, ErrorCode.NONE)


@pytest.mark.parametrize("ends", [False, True])
def test_a_deletion_whose_answer_raises_keeps_no_other_from_its_own(ends: bool) -> None:
    site = ClusterSite()
    for _ in range(3):
        site[1].produce(b"v")
        site.settle()
    outcomes = Outcomes()

    def broken(_: object) -> None:
        raise ValueError("an answer is broken")

    site.cut_off(3)
    partition = site[1].partition
    assert delete_records_before(partition, 2) == 2
    partition.wait_until_deleted(2, broken)
    partition.wait_until_deleted(2, outcomes.note())
    assert outcomes == []
    if ends:
        site.controller.elect(2)
        assert outcomes == ["NOT_LEADER_OR_FOLLOWER"]
    else:
        site.heal()
        site.advance(LAG_MS)
        assert outcomes == ["ok"]


def test_a_consumer_waits_at_a_follower_for_what_is_committed() -> None:
    site = ClusterSite(replica_selector_class=RACK_AWARE)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    reply = site[2].ask(ApiKey.FETCH, 16, request)
    site.advance(100)
    assert not reply.done
    site[1].produce(b"one")
    site.advance(100)
    response = reply.result()
    assert isinstance(response, FetchResponse)
    assert bytes_of(response.responses[0].partitions[0]) == site[1].values()[0]


# The lease of a leader


def session(site: ClusterSite, event: SessionEvent) -> None:
    replicas = site[1].partitions.replicas
    assert replicas is not None
    replicas.context.session_changed(event)


def lease(site: ClusterSite, milliseconds: float) -> None:
    """Tell how long the session surely lives on; nobody is told when that is over."""
    replicas = site[1].partitions.replicas
    assert replicas is not None
    until_ms = site.clock.monotonic_ms() + milliseconds
    replicas.context.lease_ms = lambda: until_ms - site.clock.monotonic_ms()


def test_a_zombie_accepts_acks_one_unless_it_needs_a_lease() -> None:
    site = ClusterSite()
    lease(site, 0)
    assert site[1].produce(acks=1).error is ErrorCode.NONE


def test_a_zombie_does_not_speak_for_its_partition_whatever_writes_need() -> None:
    site = ClusterSite()
    lease(site, 1_000)
    assert site[1].partition.refusal_to_answer() is None
    site.advance(1_000)
    refusal = site[1].partition.refusal_to_answer()
    assert refusal is not None
    assert refusal.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site[1].partition.refusal_to_write(-1) is None


def test_with_a_lease_a_zombie_refuses_every_write() -> None:
    site = ClusterSite(leader_lease="true")
    lease(site, 1_000)
    assert site[1].produce(acks=1).error is ErrorCode.NONE
    site.advance(999)
    assert site[1].produce(acks=1).error is ErrorCode.NONE
    site.advance(1)
    assert site[1].produce(acks=1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site[1].produce(acks=-1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lease(site, 1_000)
    assert site[1].produce(acks=1).error is ErrorCode.NONE


def test_a_lease_may_end_while_a_batch_is_prepared() -> None:
    site = ClusterSite(leader_lease="true")
    site[1].partition.set_config(TopicConfig({"compression.type": "gzip"}))
    lease(site, 1_000)
    site[1].offload.held = True
    produced = site[1].produce(acks=1)
    site.advance(1_000)
    site[1].offload.release("prepare")
    site.settle()
    assert (produced.error, site[1].end) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_a_zombie_that_refuses_does_not_name_itself() -> None:
    """A client that is told who leads goes there, and asks nobody else."""
    site = ClusterSite(leader_lease="true")
    lease(site, 0)
    refused = site[1].produce(acks=1)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.answer.current_leader.leader_id == -1
    assert refused.answer.current_leader.leader_epoch == -1


def test_an_expired_session_ends_a_lease_until_the_controller_says_more() -> None:
    site = ClusterSite(leader_lease="true")
    session(site, SessionEvent.EXPIRED)
    session(site, SessionEvent.CONNECTED)
    assert site[1].produce(acks=1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leading = site[1].partition.leading
    assert leading is not None
    leading.on_state(site.controller.state)
    assert site[1].produce(acks=1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "nothing new was said"
    site.controller.elect(1)
    assert site[1].produce(acks=1).error is ErrorCode.NONE


def test_who_has_stopped_takes_what_the_controller_says_and_fetches_nothing() -> None:
    site = ClusterSite()
    site.settle()
    stopped = site[3]
    assert stopped.partitions.replicas is not None
    stopped.partitions.replicas.stop()
    site.controller.elect(2, 1, 2, 3)
    site.settle()
    assert stopped.partition.leader_epoch == site[2].partition.leader_epoch
    site[2].produce(b"one")
    site.advance(1_000)
    assert (site[2].end, stopped.end) == (1, 0)


class BrokenReader(FetchWaiter):
    """A reader that fails when it is told that records came."""

    def data_arrived(self, size: int) -> None:
        raise ValueError("a reader is broken")


def test_a_partition_whose_answer_cannot_be_applied_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = ClusterSite()
    site.create("u")
    site.settle()
    broken = site[2].partition
    reader = BrokenReader(
        site.clock, partitions=[broken], missing_bytes=1, wait_ms=1e9, on_woken=lambda _: None
    )
    site[1].produce(b"one")
    site[1].produce(b"two", topic="u")
    site.advance(1_000)
    assert "a reader is broken" in caplog.text
    other = site[2].partitions.replica("u", 0)
    assert other is not None
    assert other.log.log_end_offset == 1
    assert broken.following is not None
    assert broken.following.machine.paused_until_ms > 0, "it is not asked for again at once"
    reader.cancel()
    site[1].produce(b"three")
    site[1].produce(b"four", topic="u")
    site.advance(2_000)
    assert (site[2].end, other.log.log_end_offset) == (2, 2)
    assert site[2].high_watermark == 2


@pytest.mark.parametrize("error", [ValueError, CorruptLogError])
@pytest.mark.parametrize("policy", ["os", "ack"])
def test_what_could_not_be_appended_is_asked_for_again(
    policy: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ClusterSite()
    for each in (1, 2, 3):
        site[each].partition.set_config(TopicConfig({"flush.policy": policy}))

    def broken(*_: object, **__: object) -> None:
        raise error("not appended")

    with monkeypatch.context() as patch:
        patch.setattr(FollowerAppender, "append_as_follower", broken)
        site[1].produce(b"one")
        site.advance(1_000)
        assert ends(site) == [1, 0, 0]
    site.advance(5_000)
    assert ends(site) == [1, 1, 1]


def look(site: ClusterSite, milliseconds: int) -> frozenset[BrokerId]:
    """Let time pass; return whom broker 1 does not hear then."""
    replicas = site[1].partitions.replicas
    assert replicas is not None
    found: frozenset[BrokerId] = frozenset()
    for _ in range(0, milliseconds, int(CONTACT_INTERVAL_MS)):
        site.advance(int(CONTACT_INTERVAL_MS))
        found = replicas.check_contact()
    return found


def test_a_leader_notices_followers_in_sync_that_have_stopped_to_fetch() -> None:
    site = ClusterSite()
    assert look(site, 5_000) == set()
    site.cut(2, 1)
    assert look(site, 3_000) == {2}
    site[1].produce(b"two does not get it")
    assert look(site, 3 * LAG_MS) == set(), "it has left the ISR, and nothing waits for it"
    assert site.isr == (1, 3)


def test_a_leader_whom_others_do_not_reach_reads_who_leads() -> None:
    site = ClusterSite()
    replicas = site[1].partitions.replicas
    assert replicas is not None
    reads = site.controller.reads
    replicas.read_states_of([BrokerId(4)])
    assert site.controller.reads == reads, "it follows nothing here"
    replicas.read_states_of([BrokerId(3), BrokerId(4)])
    assert site.controller.reads == reads + 1


def owed(site: ClusterSite, broker: int) -> dict[BrokerId, float]:
    replicas = site[broker].partitions.replicas
    assert replicas is not None
    return replicas.unanswered_since_ms()


def test_a_follower_knows_since_when_its_leader_has_not_answered() -> None:
    site = ClusterSite()
    site.advance(2_000)
    assert site.clock.monotonic_ms() - owed(site, 2)[BrokerId(1)] <= 500  # a long poll
    site.cut(1, 2)
    cut_ms = site.clock.monotonic_ms()
    site.advance(2_000)
    since_ms = owed(site, 2)[BrokerId(1)]
    assert cut_ms - 500 <= since_ms <= cut_ms + 500
    site.advance(60_000)
    assert owed(site, 2)[BrokerId(1)] == since_ms
    assert site.clock.monotonic_ms() - owed(site, 3)[BrokerId(1)] <= 500
    site.heal()
    site.advance(60_000)
    assert site.clock.monotonic_ms() - owed(site, 2)[BrokerId(1)] <= 500


@pytest.mark.parametrize(
    "refusal", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.OPERATION_NOT_ATTEMPTED]
)
def test_a_proposal_that_is_not_answered_backs_off_and_is_logged_once(
    refusal: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is away for a minute while a follower has caught up and waits to join the ISR."""
    site = ClusterSite()
    site.controller.elect(1, 1, 2)
    site.controller.refusal = refusal
    before = len(site.controller.proposals)
    caplog.set_level(logging.INFO, "millstream.runtime.replicas.leader_role")
    caplog.clear()
    site[1].produce(b"one")
    site.advance(60_000)
    failed = site.controller.proposals[before:]
    assert 50 <= len(failed) <= 75, "at most one a second once it has backed off"
    assert len(caplog.records) == 2, "the proposal, and that it is not answered"
    site.controller.refusal = None
    site.advance(2_000)
    assert site.isr == (1, 2, 3)
    ended = caplog.records[2:]
    assert len(ended) == 1
    assert f"after {len(failed)} proposals" in ended[0].getMessage()


# Damage


def damaged_site(path: str, position: int, data: bytes) -> ClusterSite:
    """Partitions t-0 and u-0 hold a record each; broker 1 was stopped cleanly and started again,
    and a file of u-0 was damaged then.
    """
    site = ClusterSite()
    site.controller.write(replicas=(BrokerId(1),), isr=(BrokerId(1),))
    site.push()
    site.create("u", replicas=(BrokerId(1),))
    for topic in (TOPIC, "u"):
        assert site[1].produce(b"v", acks=1, topic=topic).error is ErrorCode.NONE
    broker = site[1]
    broker.partitions.stop()
    broker.log_manager.close()
    broker.kill()
    broker.start()
    site.push()
    site.create("u", replicas=(BrokerId(1),), epoch=1)
    broker.files.open(f"/logs/u-0/{path}", create=True).write_at(position, data)
    return site


def test_a_damaged_partition_refuses_its_batch_and_no_other_of_the_request() -> None:
    site = damaged_site(f"{0:020}.log", 8, bytes(4))
    produced = site[1].ask(ApiKey.PRODUCE, 12, produce_request("u", TOPIC, acks=1))
    assert errors_of(produced) == {
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
        TOPIC: ErrorCode.NONE,
    }
    assert site[1].end == 2


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_damaged_partition_fails_its_part_of_a_fetch(isolation: int) -> None:
    site = damaged_site(f"{0:020}.txnindex", 0, bytes(33))
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        isolation_level=isolation,
        topics=[
            FetchTopic(
                topic_id=each,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
            for each in (TopicId(b"u".ljust(16, b".")), TOPIC_ID)
        ],
    )
    response = site[1].ask(ApiKey.FETCH, 16, request).result()
    assert isinstance(response, FetchResponse)
    damaged, healthy = (topic.partitions[0] for topic in response.responses)
    assert bytes_of(healthy)
    assert damaged.error_code or bytes_of(damaged)


def test_a_leader_that_does_not_answer_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = ClusterSite()
    caplog.set_level(logging.INFO, "millstream.runtime.replicas.replica_fetcher")
    site.cut(2, 1)
    site.advance(120_000)
    assert len(caplog.records) == 1
    assert "no answer to a fetch from broker 1" in caplog.messages[0]
    site.heal()
    site.advance(20_000)
    assert len(caplog.records) == 2
    assert "broker 1 answers fetches again" in caplog.messages[1]


def test_a_follower_is_cut_off_the_loop_and_fetches_when_its_disk_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its checkpoint says more than the log has after the cut."""
    site = ClusterSite()
    site.controller.elect(2)
    site.cut_off(2)
    for each in range(4):
        site[2].produce(b"lost %d" % each, acks=1)
    site.settle()
    plan = site[2].partition.log.flush_plan()
    assert plan is not None
    plan.run()
    site[2].partition.log.flushed(plan)
    site[2].log_manager.checkpoint_plan()()
    site.controller.elect(1, 1, 3)
    produced = [site[1].produce(b"kept %d" % each) for each in range(4)]
    site[2].offload.held = True
    caplog.set_level(logging.INFO, "millstream.runtime.replicas.follower_role")
    waited: list[str] = []
    site[2].files.hook = lambda step, path: waited.append(step) if step.startswith("sync") else None
    site.heal()
    site.advance(2_000)
    assert site[2].values() != site[1].values()
    assert waited == [], "no disk is waited for on the loop"
    for _ in range(3):
        site[2].offload.release()
        site.advance(2_000)
    assert waited
    assert caplog.text.count("where its log parts") == 1, "both steps are one cut"
    assert site[2].values() == site[1].values()
    assert [each.error for each in produced] == [ErrorCode.NONE] * 4
