"""What a leader refuses to answer while another broker may lead by now."""

from __future__ import annotations

import pytest
from tests.unit.runtime.replica_site import TOPIC, TOPIC_ID, ClusterSite

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def fetch(site: ClusterSite) -> FetchResponse:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    response = site[1].ask(ApiKey.FETCH, 16, request).result()
    assert isinstance(response, FetchResponse)
    return response


def lease(site: ClusterSite, milliseconds: float) -> None:
    """Tell how long the session surely lives on; nobody is told when that is over."""
    replicas = site[1].partitions.replicas
    assert replicas is not None
    until_ms = site.clock.monotonic_ms() + milliseconds
    replicas.context.lease_ms = lambda: until_ms - site.clock.monotonic_ms()


def error_of(response: FetchResponse) -> ErrorCode:
    (data,) = response.responses[0].partitions
    return ErrorCode.of(data.error_code)


def unfollowed(site: ClusterSite) -> None:
    """Let the followers fetch no more, for long enough to notice."""
    site.cut_off(1)
    site.advance(5_000)


def test_a_leader_without_its_lease_whom_nobody_follows_serves_no_consumer() -> None:
    """What lies below its high watermark is committed, but another broker may have more of it."""
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    unfollowed(site)
    lease(site, 1_000)
    assert error_of(fetch(site)) is ErrorCode.NONE
    site.advance(1_000)
    refused = fetch(site)
    assert error_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.responses[0].partitions[0].current_leader.leader_id == -1
    lease(site, 1_000)
    assert error_of(fetch(site)) is ErrorCode.NONE


def test_consumers_are_served_without_a_lease_while_all_who_could_lead_follow() -> None:
    """The metadata store is away from everybody: nobody was elected, and reads go on."""
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    lease(site, 0)
    site.advance(60_000)
    assert error_of(fetch(site)) is ErrorCode.NONE
    site.cut(2, 1)
    site.advance(5_000)
    assert error_of(fetch(site)) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker 2 may lead"


def test_a_leader_that_was_followed_by_its_successor_serves_nobody_soon_after() -> None:
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    lease(site, 0)
    site.controller.write(leader=BrokerId(2), leader_epoch=1, isr=(BrokerId(2), BrokerId(3)))
    site.push(2, 3)
    site.advance(2_500)
    assert error_of(fetch(site)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("unclean", [False, True])
def test_the_last_in_sync_is_read_without_a_lease_unless_others_may_lead_uncleanly(
    unclean: bool,
) -> None:
    site = ClusterSite()
    site.config = TopicConfig({"unclean.leader.election.enable": str(unclean).lower()})
    site[1].produce(b"a")
    site.settle()
    site.controller.elect(1, 1)
    site.controller.refusal = ErrorCode.INELIGIBLE_REPLICA
    lease(site, 0)
    unfollowed(site)
    assert (error_of(fetch(site)) is ErrorCode.NONE) is not unclean


def test_followers_go_on_to_fetch_from_a_leader_without_its_lease() -> None:
    """They are bound to it by its leader epoch, and what they have is what acks=all waits for."""
    site = ClusterSite()
    lease(site, 0)
    produced = site[1].produce(b"a", acks=-1)
    site.settle()
    assert produced.error is ErrorCode.NONE
    assert [site[each].end for each in (1, 2, 3)] == [1, 1, 1]


def test_a_fetch_that_waits_answers_nothing_for_a_lease_that_has_ended() -> None:
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    unfollowed(site)
    lease(site, 1_000)
    waiting = site[1].ask(
        ApiKey.FETCH,
        16,
        FetchRequest(
            max_wait_ms=5_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
                    ],
                )
            ],
        ),
    )
    site.advance(4_999)
    assert not waiting.done
    site.advance(1)
    response = waiting.result()
    assert isinstance(response, FetchResponse)
    assert error_of(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_session_hears_of_a_lease_that_has_ended_for_what_is_quiet_too() -> None:
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    unfollowed(site)
    lease(site, 1_000)
    wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)

    def incremental(session_id: int, epoch: int, *topics: FetchTopic) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=list(topics),
        )
        response = site[1].ask(ApiKey.FETCH, 16, request).result()
        assert isinstance(response, FetchResponse)
        return response

    opened = incremental(0, 0, FetchTopic(topic_id=TOPIC_ID, partitions=[wanted]))
    session_id = opened.session_id
    assert (error_of(opened), session_id > 0) == (ErrorCode.NONE, True)
    assert incremental(session_id, 1).responses == []
    site.advance(1_000)
    assert error_of(incremental(session_id, 2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lease(site, 1_000)
    assert error_of(incremental(session_id, 3)) is ErrorCode.NONE


def test_a_leader_without_its_lease_tells_no_end_of_an_epoch() -> None:
    """A consumer would take what it has read of the next leader for lost."""
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()

    def end_of_epoch() -> tuple[ErrorCode, int]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ]
        )
        response = site[1].ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).result()
        assert isinstance(response, OffsetForLeaderEpochResponse)
        (end,) = response.topics[0].partitions
        return ErrorCode.of(end.error_code), end.end_offset

    assert end_of_epoch() == (ErrorCode.NONE, 1)
    lease(site, 0)
    assert end_of_epoch() == (ErrorCode.NONE, 1)
    unfollowed(site)
    assert end_of_epoch() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_leader_without_its_lease_deletes_nothing() -> None:
    site = ClusterSite()
    site[1].produce(b"a")
    site.settle()
    lease(site, 0)
    topic = DeleteRecordsTopic(
        name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
    )
    response = (
        site[1]
        .ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic], timeout_ms=5_000))
        .result()
    )
    assert isinstance(response, DeleteRecordsResponse)
    (result,) = response.topics[0].partitions
    assert ErrorCode.of(result.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site[1].partition.log_start_offset == 0


def test_a_leader_without_its_lease_tells_no_producers() -> None:
    site = ClusterSite()
    lease(site, 0)
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
    response = site[1].ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).result()
    assert isinstance(response, DescribeProducersResponse)
    (described,) = response.topics[0].partitions
    assert ErrorCode.of(described.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
