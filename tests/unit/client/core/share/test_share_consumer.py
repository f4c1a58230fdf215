"""The share consumer against a twin cluster: membership, sessions, acknowledgements, renewal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import TwinLoop
from tests.client_twin.share_member import TwinShareMember
from tests.client_twin.sharing import ShareCluster, acknowledge_refused, fetch_refused

from millstream.client.core.consumer.errors import CorruptRecordError, RecordDeserializationError
from millstream.client.core.share.acknowledgements import AcknowledgeType
from millstream.client.core.share.errors import (
    AcknowledgeFailedError,
    NotAcquiredError,
    NotSubscribedError,
    UnacknowledgedError,
)
from millstream.client.errors import BrokerError, ClientError, UnsupportedVersionError
from millstream.model.deferred import spawn
from millstream.model.errors import ConfigError, ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.records.batch import iter_batches
from millstream.records.compaction import empty_batch

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def cluster_with(count: int, brokers: tuple[int, ...] = (1,), partitions: int = 1) -> ShareCluster:
    cluster = ShareCluster(TwinLoop(), brokers)
    cluster.create_topic("t", partitions)
    for partition in range(partitions):
        if count:
            cluster.fill("t", partition, count)
    return cluster


def member_of(cluster: ShareCluster, **settings: object) -> TwinShareMember:
    member = TwinShareMember(cluster, **settings)
    member.core.subscribe(["t"])
    return member


def offsets(records: list) -> list[int]:  # type: ignore[type-arg]
    return [record.offset for record in records]


def explicit(cluster: ShareCluster, **settings: object) -> TwinShareMember:
    return member_of(cluster, share_acknowledgement_mode="explicit", **settings)


# --- implicit acknowledgement ---------------------------------------------------------------------


def test_the_records_of_a_poll_are_accepted_by_the_next_one() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    records = cluster.loop.run(member.poll(10_000))
    assert offsets(records) == [0, 1, 2, 3, 4]
    assert {record.delivery_count for record in records} == {1}
    assert records[3].value is not None
    assert records[3].value.strip() == b"3"
    assert cluster.outcomes("t", 0, "accepted") == []
    assert cluster.loop.run(member.poll(100)) == []
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2, 3, 4]


def test_acknowledgements_travel_with_the_next_fetch() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    cluster.loop.run(member.poll(10_000))
    cluster.fill("t", 0, 3)
    assert offsets(cluster.loop.run(member.poll(10_000))) == [5, 6, 7]
    assert not any(isinstance(each, ShareAcknowledgeRequest) for each in cluster.share_requests)
    epochs = [each.share_session_epoch for each in cluster.share_requests]
    assert epochs == list(range(len(epochs)))


def test_a_poll_that_finds_buffered_records_sends_acknowledgements_apart() -> None:
    cluster = cluster_with(10)
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(10_000, 4))) == [0, 1, 2, 3]
    assert offsets(cluster.loop.run(member.poll(0, 4))) == [4, 5, 6, 7]
    cluster.loop.advance(50)
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2, 3]
    assert isinstance(cluster.share_requests[-1], ShareAcknowledgeRequest)


def test_commit_accepts_what_was_delivered_and_waits() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    cluster.loop.run(member.poll(10_000))
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2, 3, 4]
    assert member.settled[-1][1] is None


@pytest.mark.parametrize("how", ["unsubscribe", "close"])
def test_what_the_first_fetch_acquires_after_its_poll_is_given_up(how: str) -> None:
    """Its answer makes the session, so until then there is none to be ended."""
    cluster = cluster_with(5)
    member = member_of(cluster)
    cluster.after = lambda *asked: 300.0 if isinstance(asked[2], ShareFetchRequest) else 0.0
    assert cluster.loop.run(member.poll(100)) == []
    assert [each.share_session_epoch for each in cluster.share_requests] == [0]
    if how == "close":
        cluster.loop.run(member.close())
    else:
        cluster.loop.run(member.core.unsubscribe([]))
    cluster.loop.advance(500)
    assert isinstance(cluster.share_requests[-1], ShareAcknowledgeRequest)
    assert cluster.share_requests[-1].share_session_epoch == -1
    assert cluster.acquired("t", 0) == []
    assert not len(member.core.fetcher.buffer)


def test_close_gives_up_what_was_not_accepted_and_leaves() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    cluster.loop.run(member.poll(10_000))
    assert cluster.acquired("t", 0) == [0, 1, 2, 3, 4]
    cluster.loop.run(member.close())
    assert cluster.acquired("t", 0) == []
    assert cluster.outcomes("t", 0, "accepted") == []
    assert cluster.members == {}
    assert cluster.heartbeats[-1].member_epoch == -1
    other = member_of(cluster)
    records = cluster.loop.run(other.poll(10_000))
    assert {record.delivery_count for record in records} == {2}


def test_a_poll_without_a_subscription_is_an_error() -> None:
    cluster = cluster_with(1)
    member = TwinShareMember(cluster)
    with pytest.raises(NotSubscribedError):
        cluster.loop.run(member.poll(10))


def test_a_share_consumer_needs_a_group() -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        TwinShareMember(cluster_with(1), group_id=None)


def test_records_that_the_user_has_not_seen_come_again_and_keep_their_partition() -> None:
    cluster = cluster_with(2, partitions=2)
    member = member_of(cluster)
    records = cluster.loop.run(member.poll(10_000))
    while len(records) < 4:
        member.delivery.give_back(records)
        cluster.loop.run(member.poll(100, 0))
        records = member.delivery.take(10)
    member.delivery.give_back(records)
    again = member.delivery.take(10)
    assert again == records
    cluster.fill("t", 0, 1)
    member.delivery.give_back(again[3:])
    cluster.loop.run(member.commit())
    accepted = [cluster.outcomes("t", index, "accepted") for index in range(2)]
    assert sorted(accepted) == [[0], [0, 1]]
    last = again[3]
    assert cluster.outcomes("t", last.partition, "accepted") == [0]
    assert member.delivery.take(10) == [last]


# --- explicit acknowledgement ---------------------------------------------------------------------


def test_each_record_gets_what_was_said_of_it() -> None:
    cluster = cluster_with(6)
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records[:2], ACCEPT)
    member.say(records[2:4], REJECT)
    member.say(records[4:], RELEASE)
    member.say(records[1:2], REJECT)
    again = cluster.loop.run(member.poll(10_000))
    assert offsets(again) == [4, 5]
    assert [record.delivery_count for record in again] == [2, 2]
    assert cluster.outcomes("t", 0, "accepted") == [0]
    assert cluster.outcomes("t", 0, "rejected") == [1, 2, 3]


def test_polling_before_everything_is_acknowledged_is_refused_and_loses_nothing() -> None:
    cluster = cluster_with(3)
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records[:2], ACCEPT)
    with pytest.raises(UnacknowledgedError, match="1 record"):
        cluster.loop.run(member.poll(10))
    member.say(records[2:], ACCEPT)
    cluster.loop.run(member.poll(100))
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2]


def test_a_commit_sends_what_was_said_and_keeps_the_rest() -> None:
    cluster = cluster_with(3)
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records[:1], ACCEPT)
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0]
    with pytest.raises(NotAcquiredError):
        member.say(records[:1], REJECT)
    member.say(records[1:], ACCEPT)
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2]


def test_close_sends_what_was_said_and_gives_up_the_rest() -> None:
    cluster = cluster_with(3)
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records[:1], ACCEPT)
    cluster.loop.run(member.close())
    assert cluster.outcomes("t", 0, "accepted") == [0]
    assert cluster.acquired("t", 0) == []


def test_a_record_of_another_consumer_is_not_acknowledged() -> None:
    cluster = cluster_with(3)
    first, second = explicit(cluster), explicit(cluster)
    records = cluster.loop.run(first.poll(10_000))
    with pytest.raises(NotAcquiredError):
        second.say(records, ACCEPT)


def test_renewed_records_come_again_and_others_after_them() -> None:
    cluster = cluster_with(3)
    cluster.lock_ms = 1_000
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    cluster.fill("t", 0, 2)
    for _ in range(5):
        member.say(records[:2], RENEW)
        member.say(records[2:], ACCEPT)
        cluster.loop.advance(500)
        records = cluster.loop.run(member.poll(1_000))
        assert offsets(records) == [0, 1]
        assert [record.delivery_count for record in records] == [1, 1]
    member.say(records, ACCEPT)
    assert offsets(cluster.loop.run(member.poll(1_000))) == [3, 4]
    cluster.loop.advance(10)
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 2]


def test_a_renewal_that_fails_ends_the_delivery() -> None:
    cluster = cluster_with(2)
    cluster.lock_ms = 1_000
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records, RENEW)
    cluster.loop.advance(1_500)
    again = cluster.loop.run(member.poll(1_000))
    assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]
    failure = member.settled[0][1]
    assert isinstance(failure, BrokerError)
    assert failure.error is ErrorCode.INVALID_RECORD_STATE


def test_renewal_needs_a_broker_that_knows_it() -> None:
    cluster = cluster_with(2)
    for broker in cluster.brokers.values():
        broker.versions[ApiKey.SHARE_ACKNOWLEDGE] = (1, 1)
    member = explicit(cluster)
    records = cluster.loop.run(member.poll(10_000))
    member.say(records[:1], RENEW)
    member.say(records[1:], ACCEPT)
    with pytest.raises(AcknowledgeFailedError) as caught:
        cluster.loop.run(member.commit())
    assert isinstance(caught.value.__cause__, UnsupportedVersionError)


# --- records that are not there, or cannot be read ------------------------------------------------


def test_offsets_without_records_are_acknowledged_as_gaps() -> None:
    cluster = cluster_with(2)
    row = cluster.topics["t"].partitions[0]
    row.batches[0] = _emptied(row.batches[0])
    cluster.fill("t", 0, 1)
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(10_000))) == [2]
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "gap") == [0, 1]
    assert cluster.outcomes("t", 0, "accepted") == [2]


def test_a_fetch_of_gaps_alone_lets_the_group_go_on() -> None:
    cluster = cluster_with(2)
    row = cluster.topics["t"].partitions[0]
    row.batches[0] = _emptied(row.batches[0])
    member = member_of(cluster)
    assert cluster.loop.run(member.poll(200)) == []
    cluster.loop.run(member.poll(200))
    assert cluster.outcomes("t", 0, "gap") == [0, 1]


def test_a_record_that_cannot_be_deserialized_is_released_and_the_others_delivered() -> None:
    def read(topic: str, data: bytes) -> str:
        if data.strip() == b"2":
            raise ValueError("two")
        return data.strip().decode()

    cluster = cluster_with(5)
    cluster.delivery_limit = 2
    member = member_of(cluster, value_deserializer=read)
    seen: list[int] = []
    failures: list[int] = []
    for _ in range(6):
        try:
            seen += offsets(cluster.loop.run(member.poll(200)))
        except RecordDeserializationError as error:
            failures.append(error.offset)
    assert sorted(seen) == [0, 1, 3, 4]
    assert failures == [2, 2]
    assert cluster.outcomes("t", 0, "archived") == [2]
    assert cluster.outcomes("t", 0, "accepted") == [0, 1, 3, 4]


def test_the_user_decides_about_a_record_that_cannot_be_deserialized() -> None:
    def read(topic: str, data: bytes) -> str:
        raise ValueError("never")

    cluster = cluster_with(1)
    member = member_of(cluster, value_deserializer=read)
    with pytest.raises(RecordDeserializationError) as caught:
        cluster.loop.run(member.poll(10_000))
    member.delivery.acknowledge(caught.value, REJECT)
    assert cluster.loop.run(member.poll(100)) == []
    assert cluster.outcomes("t", 0, "rejected") == [0]


def test_a_damaged_batch_is_rejected() -> None:
    cluster = cluster_with(3)
    row = cluster.topics["t"].partitions[0]
    damaged = bytearray(row.batches[0])
    damaged[-1] ^= 0xFF
    row.batches[0] = bytes(damaged)
    cluster.fill("t", 0, 2)
    member = member_of(cluster)
    with pytest.raises(CorruptRecordError):
        cluster.loop.run(member.poll(10_000))
    assert offsets(cluster.loop.run(member.poll(10_000))) == [3, 4]
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "rejected") == [0, 1, 2]
    assert cluster.outcomes("t", 0, "accepted") == [3, 4]


# --- membership -----------------------------------------------------------------------------------


def test_subscription_and_rack_are_sent_once() -> None:
    cluster = cluster_with(1)
    member = member_of(cluster, client_rack="r1")
    cluster.loop.run(member.poll(3_500))
    cluster.loop.run(member.poll(3_500))
    first, *others = cluster.heartbeats
    assert (first.member_epoch, first.subscribed_topic_names, first.rack_id) == (0, ["t"], "r1")
    assert len(others) >= 3
    assert {each.subscribed_topic_names is None and each.rack_id is None for each in others} == {
        True
    }
    assert {each.member_epoch for each in others} == {1}
    assert len({each.member_id for each in cluster.heartbeats}) == 1
    assert len(first.member_id) == 22


def test_a_new_subscription_is_told_at_once() -> None:
    cluster = cluster_with(1)
    cluster.create_topic("u")
    cluster.fill("u", 0, 2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    member.core.subscribe(["u"])
    records = cluster.loop.run(member.poll(2_000))
    assert [record.topic for record in records] == ["u", "u"]


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_again_and_goes_on(error: ErrorCode) -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    cluster.members.clear()
    refused = iter([True])

    def refuse(broker: object, request: object) -> ShareGroupHeartbeatResponse | None:
        if isinstance(request, ShareGroupHeartbeatRequest) and next(refused, False):
            return ShareGroupHeartbeatResponse(
                error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
            )
        return None

    cluster.hooks.append(refuse)
    cluster.loop.run(member.poll(1_500))
    assert list(cluster.members) == [member.core.member.member_id]
    cluster.fill("t", 0, 2)
    assert offsets(cluster.loop.run(member.poll(5_000))) == [2, 3]


@pytest.mark.parametrize(
    "error", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_an_error_that_lasts_ends_the_membership(error: ErrorCode) -> None:
    cluster = cluster_with(2)

    def refuse(broker: object, request: object) -> ShareGroupHeartbeatResponse | None:
        if isinstance(request, ShareGroupHeartbeatRequest):
            return ShareGroupHeartbeatResponse(
                error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
            )
        return None

    cluster.hooks.append(refuse)
    member = member_of(cluster)
    for _ in range(2):
        with pytest.raises(BrokerError) as caught:
            cluster.loop.run(member.poll(5_000))
        assert caught.value.error is error
        cluster.loop.advance(100)


def test_a_cluster_without_share_groups_is_named() -> None:
    cluster = cluster_with(2)
    for broker in cluster.brokers.values():
        del broker.versions[ApiKey.SHARE_GROUP_HEARTBEAT]
    member = member_of(cluster)
    with pytest.raises(UnsupportedVersionError, match="share groups"):
        cluster.loop.run(member.poll(5_000))


def test_a_member_that_does_not_poll_leaves_and_joins_again_with_the_next_poll() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster, max_poll_interval_ms=2_000)
    cluster.loop.run(member.poll(5_000))
    cluster.loop.advance(4_000)
    assert cluster.members == {}
    cluster.fill("t", 0, 1)
    assert offsets(cluster.loop.run(member.poll(5_000))) == [2]
    assert list(cluster.members) == [member.core.member.member_id]


@pytest.mark.parametrize("calls_core", [True, False])
def test_a_member_that_polls_stays(calls_core: bool) -> None:
    cluster = cluster_with(2)
    member = member_of(cluster, max_poll_interval_ms=2_000)
    cluster.loop.run(member.poll(5_000))
    for _ in range(5):
        cluster.loop.advance(1_500)
        if calls_core:
            cluster.loop.run(member.poll(10))
        else:
            member.core.note_poll()
    assert list(cluster.members) == [member.core.member.member_id]
    assert {each.member_epoch for each in cluster.heartbeats[1:]} == {1}


def test_the_coordinator_may_move() -> None:
    cluster = cluster_with(2, brokers=(1, 2))
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    cluster.coordinator_id = 2
    cluster.loop.run(member.poll(3_000))
    assert member.core.member.state.name == "STABLE"


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_session_recovers_from_errors_of_a_fetch(error: ErrorCode, times: int) -> None:
    cluster = cluster_with(2)
    cluster.lock_ms = 2_000
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(5_000))) == [0, 1]
    left = iter(range(times))

    def refuse(broker: object, request: object) -> ShareFetchResponse | None:
        if isinstance(request, ShareFetchRequest) and next(left, None) is not None:
            cluster.share_sessions.clear()
            return fetch_refused(error)
        return None

    cluster.hooks.append(refuse)
    # The acknowledgements fail with the session: what it delivered comes again.
    assert cluster.loop.run(member.poll(1_000)) == []
    failure = member.settled[0][1]
    assert isinstance(failure, BrokerError)
    assert failure.error is error
    again = cluster.loop.run(member.poll(5_000))
    assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0, 1]
    assert cluster.intruders == []


def test_a_refusal_that_lasts_is_raised() -> None:
    cluster = cluster_with(2)

    def refuse(broker: object, request: object) -> ShareFetchResponse | None:
        if isinstance(request, ShareFetchRequest):
            return fetch_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return None

    cluster.hooks.append(refuse)
    member = member_of(cluster)
    with pytest.raises(BrokerError) as caught:
        cluster.loop.run(member.poll(5_000))
    assert caught.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_commit_fails_with_the_session_and_says_which_partition() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    records = cluster.loop.run(member.poll(5_000))
    cluster.share_sessions.clear()
    with pytest.raises(AcknowledgeFailedError) as caught:
        cluster.loop.run(member.commit())
    assert list(caught.value.errors) == [records[0].topic_partition]
    assert caught.value.error is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_lost_connection_ends_the_delivery() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    cluster.brokers[1].stop()
    cluster.loop.advance(10)
    cluster.brokers[1].start()
    with pytest.raises(AcknowledgeFailedError):
        cluster.loop.run(member.commit())
    again = cluster.loop.run(member.poll(5_000))
    assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]


def test_buffered_records_whose_lock_has_ended_are_not_delivered() -> None:
    cluster = cluster_with(4)
    cluster.lock_ms = 1_000
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(5_000, 2))) == [0, 1]
    cluster.loop.run(member.commit())
    other = member_of(cluster)
    cluster.loop.advance(1_500)
    assert offsets(cluster.loop.run(other.poll(5_000))) == [2, 3]
    assert cluster.loop.run(member.poll(200)) == []


def test_acknowledgements_that_fail_in_passing_are_sent_again() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    left = iter(range(3))
    serve = cluster._acknowledge_row

    def refuse(*given: object) -> ErrorCode:
        if next(left, None) is not None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return serve(*given)  # type: ignore[arg-type]

    cluster._acknowledge_row = refuse  # type: ignore[method-assign]
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0, 1]


def test_acknowledgements_are_given_up_after_the_time_out() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster._acknowledge_row = lambda *_: refusal  # type: ignore[method-assign]
    with pytest.raises(AcknowledgeFailedError):
        cluster.loop.run(member.commit(2_000))


def test_an_answer_without_a_partition_is_a_failure() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))

    def say_nothing(broker: object, request: object) -> ShareAcknowledgeResponse | None:
        if isinstance(request, ShareAcknowledgeRequest):
            return acknowledge_refused(ErrorCode.NONE)
        return None

    cluster.hooks.append(say_nothing)
    with pytest.raises(AcknowledgeFailedError) as caught:
        cluster.loop.run(member.commit())
    assert caught.value.error is ErrorCode.INVALID_RECORD_STATE


# --- leaders and several brokers ------------------------------------------------------------------


def test_a_new_leader_is_fetched_from_and_what_the_old_one_delivered_comes_again() -> None:
    cluster = cluster_with(2, brokers=(1, 2))
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(5_000))) == [0, 1]
    cluster.move_leader("t", 0, 2)
    again = cluster.loop.run(member.poll(5_000))
    assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]
    assert isinstance(member.settled[0][1], BrokerError)
    cluster.loop.run(member.commit())
    assert cluster.outcomes("t", 0, "accepted") == [0, 1]


def test_a_refused_acknowledgement_tells_who_leads() -> None:
    cluster = cluster_with(2, brokers=(1, 2))
    member = member_of(cluster)
    assert offsets(cluster.loop.run(member.poll(5_000))) == [0, 1]
    cluster.after = lambda broker, connection, request: (
        60_000.0 if isinstance(request, MetadataRequest) else 0.0
    )
    cluster.move_leader("t", 0, 2)
    with pytest.raises(AcknowledgeFailedError) as caught:
        cluster.loop.run(member.commit())
    assert caught.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked: list[int] = []

    def note(broker: TwinBroker, request: Request) -> None:
        if isinstance(request, ShareFetchRequest) and any(
            topic.partitions for topic in request.topics
        ):
            asked.append(broker.node_id)

    cluster.hooks.append(note)
    again = cluster.loop.run(member.poll(2_000))
    assert [(each.offset, each.delivery_count) for each in again] == [(0, 2), (1, 2)]
    assert asked == [2]


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    cluster = cluster_with(2)
    cluster.move_leader("t", 0, -1)
    member = member_of(cluster)
    assert cluster.loop.run(member.poll(2_000)) == []
    cluster.move_leader("t", 0, 1)
    assert offsets(cluster.loop.run(member.poll(2_000))) == [0, 1]


@pytest.mark.parametrize(("mode", "wait_ms"), [("batch_optimized", 600), ("record_limit", 300)])
def test_brokers_that_take_turns_share_the_time_to_wait(mode: str, wait_ms: int) -> None:
    cluster = cluster_with(0, brokers=(1, 2), partitions=2)
    member = member_of(cluster, share_acquire_mode=mode, fetch_max_wait_ms=600)
    cluster.loop.run(member.poll(3_000))
    waits = {
        each.max_wait_ms for each in cluster.share_requests if isinstance(each, ShareFetchRequest)
    }
    assert waits == {wait_ms}


def test_an_answer_to_acknowledgements_tells_how_long_locks_last() -> None:
    cluster = cluster_with(2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    assert member.core.fetcher.acknowledger.acquisition_lock_timeout_ms == 30_000
    cluster.lock_ms = 5_000
    cluster.loop.run(member.commit())
    assert member.core.fetcher.acknowledger.acquisition_lock_timeout_ms == 5_000


def test_every_leader_is_fetched_from() -> None:
    cluster = cluster_with(3, brokers=(1, 2, 3), partitions=3)
    member = member_of(cluster)
    seen: list[tuple[int, int]] = []
    for _ in range(5):
        records = cluster.loop.run(member.poll(300))
        seen += [(each.partition, each.offset) for each in records]
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(3)]


def test_record_limit_asks_one_broker_at_a_time_and_never_takes_more() -> None:
    cluster = cluster_with(7, brokers=(1, 2), partitions=2)
    member = member_of(cluster, share_acquire_mode="record_limit", max_poll_records=2)
    seen: list[tuple[int, int]] = []
    for _ in range(20):
        records = cluster.loop.run(member.poll(600))
        assert len(records) <= 2
        held = len(cluster.acquired("t", 0)) + len(cluster.acquired("t", 1))
        assert held <= 2
        seen += [(each.partition, each.offset) for each in records]
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(7)]


def test_record_limit_needs_a_broker_that_knows_it() -> None:
    cluster = cluster_with(2)
    cluster.brokers[1].versions[ApiKey.SHARE_FETCH] = (1, 1)
    member = member_of(cluster, share_acquire_mode="record_limit")
    with pytest.raises(UnsupportedVersionError, match="record_limit"):
        cluster.loop.run(member.poll(5_000))


def test_closing_does_not_wait_for_a_broker_that_is_gone() -> None:
    cluster = cluster_with(2, brokers=(1, 2))
    cluster.move_leader("t", 0, 2)
    member = member_of(cluster)
    cluster.loop.run(member.poll(5_000))
    cluster.brokers[2].stop()
    began = cluster.loop.now_ms()
    cluster.loop.run(member.close(10_000))
    assert cluster.loop.now_ms() - began <= 10_000
    assert cluster.members == {}


def _emptied(data: bytes | bytearray) -> bytes:
    """Return a batch's offsets without records, as compaction leaves one."""
    (batch,) = iter_batches(data)
    return empty_batch(batch)


# --- ends that take longer than they have ---------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_a_subscription_after_a_late_end_gets_a_session_of_its_own(*, is_first: bool) -> None:
    """What ended the earlier session must not end this one, nor may this one go on in that."""
    cluster = cluster_with(5)
    cluster.create_topic("u", 1)
    cluster.fill("u", 0, 3)
    member = member_of(cluster, default_api_timeout_ms=400)
    if not is_first:
        assert len(cluster.loop.run(member.poll(10_000))) == 5
    slow = ShareFetchRequest if is_first else ShareAcknowledgeRequest
    cluster.after = lambda *asked: 900.0 if isinstance(asked[2], slow) else 0.0
    if is_first:
        assert cluster.loop.run(member.poll(100)) == []
    cluster.loop.run(member.core.unsubscribe(member.delivery.take_acknowledged()))
    assert -1 not in [each.share_session_epoch for each in cluster.share_requests] or not is_first
    member.core.subscribe(["u"])
    records = cluster.loop.run(member.poll(10_000))
    assert {record.topic for record in records} == {"u"}
    cluster.loop.run(member.commit())
    assert cluster.outcomes("u", 0, "accepted") == [0, 1, 2]
    epochs = [each.share_session_epoch for each in cluster.share_requests]
    last = len(epochs) - epochs[::-1].index(-1)
    assert epochs.count(-1) == 1
    assert epochs[last:] == list(range(len(epochs) - last)), epochs
    assert cluster.acquired("t", 0) == []


def test_a_first_fetch_that_outlasts_the_end_makes_no_session() -> None:
    """Nobody waits for it any more: what it brings belongs to a subscription that is over."""
    cluster = cluster_with(5)
    cluster.create_topic("u", 1)
    cluster.fill("u", 0, 3)
    member = member_of(cluster)
    cluster.after = lambda *asked: 4_000.0 if isinstance(asked[2], ShareFetchRequest) else 0.0
    assert cluster.loop.run(member.poll(100)) == []
    cluster.loop.run(member.core.unsubscribe([]))
    cluster.loop.advance(5_000)
    assert not len(member.core.fetcher.buffer)
    cluster.after = lambda *asked: 0.0
    member.core.subscribe(["u"])
    records = cluster.loop.run(member.poll(10_000))
    assert {record.topic for record in records} == {"u"}
    assert cluster.share_requests[-1].share_session_epoch == 0


def test_acknowledgements_of_a_session_that_has_ended_meanwhile_fail_at_once() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    records = cluster.loop.run(member.poll(10_000))
    assert len(records) == 5
    cluster.after = lambda *asked: 900.0 if isinstance(asked[2], ShareFetchRequest) else 0.0
    polling = spawn(member.poll(100))  # takes the acknowledgements along
    cluster.loop.advance(10)
    for node in member.core.fetcher._nodes.values():
        node.session.on_failure()
    cluster.loop.run(polling)
    cluster.loop.advance(1_000)
    cluster.loop.run(member.poll(0))
    assert len(member.settled) == 1
    assert isinstance(member.settled[0][1], BrokerError)


def test_a_request_that_cannot_be_written_ends_and_is_told() -> None:
    cluster = cluster_with(5)
    member = member_of(cluster)
    cluster.loop.run(member.poll(10_000))
    cluster.fill("t", 0, 1)
    fetcher = member.core.fetcher
    fetcher._settings = replace(member.settings, fetch_max_bytes=1 << 40)
    with pytest.raises(ClientError, match="ShareFetchRequest v2 cannot hold a value"):
        cluster.loop.run(member.poll(1_000))
    sent = len(cluster.share_requests)
    cluster.loop.advance(1_000)
    assert len(cluster.share_requests) == sent
    assert not any(each.is_busy for each in fetcher._nodes.values())
    fetcher._settings = member.settings
    member.core.user._failures.clear()  # of the attempts since
    assert offsets(cluster.loop.run(member.poll(10_000))) == [5]


@pytest.mark.parametrize("is_join", [True, False])
@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_coordinator_that_fences_every_member_is_not_flooded(
    error: ErrorCode, *, is_join: bool
) -> None:
    cluster = cluster_with(5)
    cluster.interval_ms = 50
    member = member_of(cluster)
    asked: list[int] = []
    refusing = [True]

    def refuse(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ShareGroupHeartbeatRequest) or not refusing:
            return None
        asked.append(request.member_epoch)
        if (request.member_epoch == 0) is not is_join:
            return None
        return ShareGroupHeartbeatResponse(
            error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
        )

    cluster.hooks.append(refuse)
    for _ in range(100):
        cluster.loop.run(member.poll(100))
    assert 5 <= len(asked) <= 60
    refusing.clear()
    cluster.fill("t", 0, 1)
    cluster.loop.advance(1_500)
    assert 5 in offsets(cluster.loop.run(member.poll(10_000)))
