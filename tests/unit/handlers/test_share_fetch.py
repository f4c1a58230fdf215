"""ShareFetch: sessions, what is acquired and sent, waiting, redelivery, leadership."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.handlers.share_broker import Got, ShareBroker, got

from millstream.config.offset_reset import OffsetReset
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import SHARE_VERSION, FinalizedFeatures
from millstream.records.control import ControlType, EndTransactionMarker, MarkerBatch
from millstream.runtime.replicas.committed_appends import append_marker
from millstream.runtime.replicas.partition import READ_COMMITTED
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.share.rules import ShareRules
from millstream.share.state import SharePartitionKey

ACCEPT, RELEASE, REJECT, RENEW = [1], [2], [3], [4]
LOCK_MS = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShareBroker]:
    made = ShareBroker(tmp_path)
    yield made
    made.close()


# Sessions


def test_the_first_fetch_begins_a_session_and_acquires(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(3, 4)
    one = broker.consumer("m1", topic)
    response = one.respond()
    assert response.acquisition_lock_timeout_ms == LOCK_MS
    assert got(response) == {(topic, 0): Got(acquired=[(0, 6, 1)], bases=[0, 3])}
    broker.records(2)
    assert one.one() == Got(acquired=[(7, 8, 1)], bases=[7])
    assert one.fetch() == {}
    assert len(broker.shares.sessions) == 1


def test_two_members_never_hold_the_same_record(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5, 5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    assert one.one(max_records=6).acquired == [(0, 9, 1)]
    assert two.one() == Got(acquired=[(10, 14, 1)], bases=[10])


def test_partitions_are_added_and_forgotten(broker: ShareBroker) -> None:
    first, second = broker.topic("a"), broker.topic("b")
    one = broker.consumer("m1", first)
    one.fetch()
    broker.records(1, topic="a")
    broker.records(1, topic="b")
    one.added = [(second, 0)]
    assert set(one.fetch()) == {(first, 0), (second, 0)}
    broker.records(1, topic="a")
    broker.records(1, topic="b")
    assert set(one.fetch(forget=[(first, 0)])) == {(second, 0)}


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (1, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (-1, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (-2, ErrorCode.SHARE_SESSION_NOT_FOUND),
    ],
)
def test_a_session_has_to_begin(broker: ShareBroker, epoch: int, error: ErrorCode) -> None:
    one = broker.consumer("m1", broker.topic())
    assert one.respond(epoch=epoch).error_code == error.code


@pytest.mark.parametrize("epoch", [2, 7, -2])
def test_the_epoch_has_to_be_the_next(broker: ShareBroker, epoch: int) -> None:
    one = broker.consumer("m1", broker.topic())
    one.fetch()
    code = one.respond(epoch=epoch).error_code
    assert code == ErrorCode.INVALID_SHARE_SESSION_EPOCH.code
    assert one.fetch() == {}, "the session goes on"


def test_a_new_session_takes_the_place_of_the_old_one(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    assert one.one().acquired == [(0, 4, 1)]
    one.epoch, one.added = 0, [(topic, 0)]
    assert one.fetch() == {(topic, 0): Got()}, "what the member holds stays locked"
    assert len(broker.shares.sessions) == 1


def test_the_first_request_acknowledges_nothing(broker: ShareBroker) -> None:
    one = broker.consumer("m1", broker.topic())
    assert one.respond(acks=[(0, 0, ACCEPT)]).error_code == ErrorCode.INVALID_REQUEST.code


def test_the_last_request_acknowledges_and_releases(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    two.fetch(max_records=1)
    one.fetch()
    assert one.one(epoch=-1, acks=[(5, 6, ACCEPT)]) == Got()
    assert two.one().acquired == [(7, 9, 2)], "the delivery counts"
    assert one.respond(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND.code


def test_a_closed_connection_ends_the_session(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch()
    two.fetch()
    one.connection.closed()
    assert len(broker.shares.sessions) == 1
    assert two.one().acquired == [(0, 4, 2)]


def test_a_group_without_sessions_takes_no_memory(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    one.fetch()
    assert len(broker.shares) == 1
    one.connection.closed()
    assert len(broker.shares) == 0
    assert broker.clock.timers_running == 0
    again = broker.consumer("m1", topic)
    assert again.one().acquired == [(offset, offset, 2) for offset in range(5)]


def test_sessions_are_limited(broker: ShareBroker) -> None:
    """A client without one is answered once its time is up; or it would come back at once."""
    topic = broker.topic()
    broker.max_sessions = 2
    for member in ("m1", "m2"):
        broker.consumer(member, topic).fetch()
    three = broker.consumer("m3", topic)
    answer = three.start(max_wait_ms=500)
    assert not answer.done
    broker.clock.advance(500)
    assert answer.result().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED.code


@pytest.mark.slow
def test_ten_thousand_members_come_and_go(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.max_sessions = 2000
    refused = 0
    for number in range(10_000):
        one = broker.consumer(f"m{number}", topic)
        refused += one.respond().error_code != 0
        if number % 2:
            one.connection.closed()
    assert refused > 0
    assert len(broker.shares.sessions) <= 2000
    assert len(broker.shares) == 1


@pytest.mark.parametrize("member", ["", "x" * 37])
def test_member_ids_are_checked(broker: ShareBroker, member: str) -> None:
    one = broker.consumer(member, broker.topic())
    assert one.respond().error_code == ErrorCode.INVALID_REQUEST.code


def test_a_group_is_needed(broker: ShareBroker) -> None:
    one = broker.consumer("m1", broker.topic())
    one.group = None
    assert one.respond().error_code == ErrorCode.INVALID_REQUEST.code


def test_share_groups_may_be_off(broker: ShareBroker) -> None:
    broker.metadata.features = FinalizedFeatures({SHARE_VERSION: 0})
    one = broker.consumer("m1", broker.topic())
    assert one.respond().error_code == ErrorCode.UNSUPPORTED_VERSION.code


# What is acquired and sent


def test_only_acquired_batches_are_sent(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5, 5, 5)
    one = broker.consumer("m1", topic)
    assert one.one(max_records=8) == Got(acquired=[(0, 9, 1)], bases=[0, 5])
    two = broker.consumer("m2", topic)
    assert two.one(max_records=3, share_acquire_mode=1) == Got(acquired=[(10, 12, 1)], bases=[10])
    assert two.one() == Got(acquired=[(13, 14, 1), (15, 19, 1)], bases=[10, 15])


def test_released_records_are_sent_with_their_batches_alone(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5, 5, 5)
    one = broker.consumer("m1", topic)
    one.fetch()
    assert one.one(acks=[(6, 6, RELEASE), (11, 12, RELEASE)], max_records=0) == Got()
    assert one.one() == Got(acquired=[(6, 6, 2), (11, 12, 2)], bases=[5, 10])


def test_records_of_all_partitions_count(broker: ShareBroker) -> None:
    first, second = broker.topic("a"), broker.topic("b")
    broker.records(5, topic="a")
    broker.records(5, 5, topic="b")
    one = broker.consumer("m1", first, second)
    found = one.fetch(max_records=6)
    assert [each.acquired for each in found.values()] == [[(0, 4, 1)], [(0, 4, 1)]]


def test_partitions_come_in_turns(broker: ShareBroker) -> None:
    first, second = broker.topic("a"), broker.topic("b")
    broker.records(5, 5, 5, topic="a")
    broker.records(5, 5, 5, topic="b")
    one = broker.consumer("m1", first, second)
    turns = [next(iter(one.fetch(max_records=5)))[0] for _ in range(4)]
    assert turns == [first, second, first, second]


def test_a_large_batch_is_sent_whole(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(50, 50)
    one = broker.consumer("m1", topic)
    assert one.one(max_bytes=100).acquired == [(0, 49, 1)]


def test_nothing_is_fetched_with_no_room(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    assert one.fetch(max_records=0) == {}
    assert one.fetch(max_bytes=0) == {}
    assert one.one().acquired == [(0, 4, 1)]


def test_many_small_batches(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(*[1] * 300)
    one = broker.consumer("m1", topic)
    assert one.one(max_records=250, batch_size=100) == Got(
        acquired=[(0, 99, 1), (100, 199, 1), (200, 249, 1)], bases=list(range(250))
    )


def _marker(broker: ShareBroker, control_type: ControlType, producer_id: int) -> None:
    marker = MarkerBatch.of(
        EndTransactionMarker(control_type, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=broker.clock.now_ms(),
    )
    append_marker(broker.partitions.get("t", 0), marker, transaction_version=1)
    broker.clock.settle()


def _transaction(broker: ShareBroker, producer_id: int, count: int) -> None:
    broker.records(
        count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_committed_readers_skip_aborted_records_and_wait_for_open_ones(
    broker: ShareBroker,
) -> None:
    topic = broker.topic()
    broker.group = replace(broker.group, isolation=READ_COMMITTED)
    broker.records(2)
    _transaction(broker, 7, 3)
    _marker(broker, ControlType.ABORT, 7)
    _transaction(broker, 8, 2)
    _marker(broker, ControlType.COMMIT, 8)
    _transaction(broker, 9, 5)
    one = broker.consumer("m1", topic)
    assert one.one().acquired == [(0, 1, 1), (5, 8, 1)]
    assert one.fetch() == {}
    _marker(broker, ControlType.ABORT, 9)
    assert one.one().acquired == [(14, 14, 1)], "the marker, which a client says is no record"


def test_readers_of_everything_get_aborted_records(broker: ShareBroker) -> None:
    topic = broker.topic()
    _transaction(broker, 7, 3)
    one = broker.consumer("m1", topic)
    assert one.one().acquired == [(0, 2, 1)]


def test_aborted_batches_alone_do_not_end_a_fetch(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.group = replace(broker.group, isolation=READ_COMMITTED)
    _transaction(broker, 7, 3)
    one = broker.consumer("m1", topic)
    answer = one.start(max_wait_ms=1000)
    _marker(broker, ControlType.ABORT, 7)
    broker.records(1)
    broker.clock.settle()
    found = got(answer.result())[topic, 0].acquired
    assert found[0][0] == 3


# Where a group begins


def test_a_group_may_begin_at_the_end(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    broker.group = replace(broker.group, offset_reset=OffsetReset.LATEST)
    one = broker.consumer("m1", topic)
    assert one.one() == Got()
    broker.records(1)
    assert one.one().acquired == [(5, 5, 1)]


def test_a_group_may_begin_some_time_ago(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    broker.clock.advance(60_000)
    broker.records(5)
    broker.clock.advance(10_000)
    broker.group = replace(
        broker.group, offset_reset=OffsetReset.BY_DURATION, reset_duration_ms=30_000
    )
    assert broker.consumer("m1", topic).one().acquired == [(5, 9, 1)]
    broker.group = replace(broker.group, reset_duration_ms=1)
    other = broker.consumer("m1", topic, group="h")
    assert other.one() == Got()


def test_a_group_goes_on_where_it_was(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5)
    key = SharePartitionKey("g", topic, 0)
    broker.coordinator.start_offsets[key] = 3
    broker.coordinator.rows[key] = {5: (2, 1), 6: (0, 2)}
    assert broker.consumer("m1", topic).one().acquired == [(3, 4, 1), (6, 6, 3), (7, 9, 1)]
    assert broker.coordinator.reads == [(key, broker.partitions.get("t", 0).leader_epoch)]


def test_a_fetch_waits_while_the_state_is_read(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    broker.coordinator.is_held = True
    answers = [broker.consumer(each, topic).start(max_wait_ms=1000) for each in ("m1", "m2")]
    broker.coordinator.is_held = False
    broker.coordinator.release()
    broker.clock.settle()
    assert got(answers[0].result())[topic, 0].acquired == [(0, 4, 1)]
    assert not answers[1].done
    assert len(broker.coordinator.reads) == 1


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_is_asked_for_again(
    broker: ShareBroker, error: ErrorCode, answer: ErrorCode
) -> None:
    topic = broker.topic()
    broker.records(5)
    broker.coordinator.refusal = KafkaError(error)
    one = broker.consumer("m1", topic)
    assert one.one(max_wait_ms=1000).error == answer.code
    assert len(broker.shares) == 0
    broker.coordinator.refusal = None
    assert one.one().acquired == [(0, 4, 1)]


# Waiting


def test_a_fetch_waits_for_records(broker: ShareBroker) -> None:
    topic = broker.topic()
    one = broker.consumer("m1", topic)
    answer = one.start(max_wait_ms=1000)
    assert not answer.done
    broker.records(2)
    assert got(answer.result())[topic, 0].acquired == [(0, 1, 1)]


def test_a_fetch_waits_for_enough(broker: ShareBroker) -> None:
    topic = broker.topic()
    one = broker.consumer("m1", topic)
    answer = one.start(max_wait_ms=1000, min_bytes=250)
    broker.records(1)
    assert not answer.done
    broker.records(10)
    assert got(answer.result())[topic, 0].acquired == [(0, 10, 1)]


def test_a_fetch_is_answered_when_its_time_is_up(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(1)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    answer = one.start(max_wait_ms=1000, min_bytes=10_000)
    assert not answer.done
    broker.clock.advance(1000)
    assert got(answer.result())[topic, 0].acquired == [(0, 0, 1)]
    empty = two.start(max_wait_ms=1000)
    broker.clock.advance(1000)
    assert got(empty.result()) == {(topic, 0): Got()}


def test_a_waiting_fetch_holds_nothing(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(1)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.start(max_wait_ms=1000, min_bytes=10_000)
    assert two.one().acquired == [(0, 0, 1)]


def test_a_fetch_waits_for_released_records(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch()
    answer = two.start(max_wait_ms=1000)
    assert not answer.done
    assert one.acknowledged((2, 3, RELEASE)) == 0
    assert got(answer.result())[topic, 0].acquired == [(2, 3, 2)]


def test_a_fetch_waits_for_the_end_of_a_lock(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch()
    answer = two.start(max_wait_ms=2 * LOCK_MS)
    broker.clock.advance(LOCK_MS - 1)
    assert not answer.done
    broker.clock.advance(1)
    assert got(answer.result())[topic, 0].acquired == [(0, 4, 2)]
    assert one.acknowledged((0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE.code
    assert two.acknowledged((0, 4, ACCEPT)) == 0


def test_a_fetch_waits_for_room(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.group = replace(broker.group, rules=ShareRules(max_record_locks=100))
    broker.records(100, 50)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    assert one.one().acquired == [(0, 99, 1)]
    answer = two.start(max_wait_ms=1000)
    assert not answer.done
    assert one.acknowledged((0, 9, ACCEPT)) == 0
    assert got(answer.result())[topic, 0].acquired == [(100, 149, 1)]


def test_nothing_is_acquired_for_a_client_that_has_gone(broker: ShareBroker) -> None:
    topic = broker.topic()
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    two.fetch()
    one.start(max_wait_ms=1000)
    one.connection.closed()
    broker.records(1)
    assert two.one().acquired == [(0, 0, 1)]


# Delivery


def test_a_record_is_delivered_as_often_as_allowed(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.group = replace(broker.group, rules=ShareRules(delivery_count_limit=2))
    broker.records(5)
    one = broker.consumer("m1", topic)
    for count in (1, 2):
        assert one.one().acquired[0][2] == count
        broker.clock.advance(LOCK_MS)
    assert one.fetch() == {}
    assert broker.coordinator.updates[-1].state_batches[-1][2:] == (4, 2)


def test_renewed_locks_last_longer_and_fetch_nothing(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch(max_records=5)
    broker.clock.advance(LOCK_MS - 1000)
    renewed = one.one(
        acks=[(0, 4, RENEW)], is_renew_ack=True, max_bytes=0, min_bytes=0, max_records=0
    )
    assert renewed == Got()
    broker.clock.advance(LOCK_MS - 1000)
    assert two.one().acquired == [(5, 9, 1)]
    wrong = one.respond(acks=[(0, 4, RENEW)], is_renew_ack=True)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST.code
    assert "maxBytes must be set to 0" in (wrong.error_message or "")


def test_acknowledgements_ride_on_a_fetch(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5)
    one = broker.consumer("m1", topic)
    one.fetch(max_records=5)
    assert one.one(acks=[(0, 4, ACCEPT)]) == Got(acquired=[(5, 9, 1)], bases=[5])
    assert broker.coordinator.updates[-1].state_batches == ((0, 4, 2, 1),)
    wrong = one.one(acks=[(0, 4, ACCEPT), (40, 41, ACCEPT)])
    assert wrong.acknowledge_error == ErrorCode.INVALID_REQUEST.code
    assert wrong.error == 0


# Leadership and deletion


def test_deleted_records_are_passed_over(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5, 5)
    one = broker.consumer("m1", topic)
    one.fetch(max_records=5)
    delete_records_before(broker.partitions.get("t", 0), 8)
    assert one.one().acquired == [(8, 14, 1)]
    assert one.acknowledged((0, 4, ACCEPT)) == 0


def test_partitions_that_nobody_knows(broker: ShareBroker) -> None:
    topic = broker.topic()
    unknown = uuid.UUID(int=77).bytes
    one = broker.consumer("m1", unknown)
    one.added += [(topic, 1), (topic, 5)]
    assert {key: each.error for key, each in one.fetch(max_wait_ms=1000).items()} == {
        (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID.code,
        (topic, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
        (topic, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
    }


def test_a_partition_that_is_led_no_more(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    one.fetch()
    waiting = one.start(max_wait_ms=1000)
    partition = broker.partitions.get("t", 0)
    broker.partitions.by_id[topic][0] = None
    partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    broker.clock.settle()
    assert got(waiting.result())[topic, 0] == Got(
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER.code, leader=(-1, -1)
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert one.acknowledged((0, 4, ACCEPT)) == unknown
    assert len(broker.shares) == 0


def test_a_leader_that_was_fenced_reads_the_state_again(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    one.fetch()
    broker.coordinator.refusal = KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    assert one.acknowledged((0, 4, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
    broker.coordinator.refusal = None
    assert one.one().acquired == [(0, 4, 1)]
    assert len(broker.coordinator.reads) == 2


def test_a_leader_whose_groups_state_was_deleted_reads_that_of_the_next_group(
    broker: ShareBroker,
) -> None:
    topic = broker.topic()
    broker.records(5)
    one = broker.consumer("m1", topic)
    one.fetch()
    broker.coordinator.refusal = KafkaError(ErrorCode.INVALID_REQUEST)
    broker.clock.advance(LOCK_MS)
    assert len(broker.shares) == 0, "the end of the locks could not be written"
    broker.coordinator.refusal = None
    broker.coordinator.start_offsets[SharePartitionKey("g", topic, 0)] = 3
    assert one.one().acquired == [(3, 4, 1)]


def test_locks_end_although_nothing_can_be_written(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch()
    broker.coordinator.refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker.clock.advance(LOCK_MS)
    assert two.one().acquired == [(0, 4, 2)]
    assert len(broker.shares) == 1


def test_partitions_without_records_are_named_once(broker: ShareBroker) -> None:
    topic = broker.topic(partitions=2)
    one = broker.consumer("m1")
    one.added = [(topic, 0)]
    assert one.fetch() == {(topic, 0): Got()}
    assert one.fetch() == {}
    one.added = [(topic, 1)]
    assert one.fetch() == {(topic, 1): Got()}
    assert one.fetch() == {}


def test_a_state_that_cannot_be_read_is_told_at_once(broker: ShareBroker) -> None:
    """The fetch that waited for it does not begin to read it again."""
    topic = broker.topic()
    broker.coordinator.is_held = True
    broker.coordinator.refusal = KafkaError(ErrorCode.INVALID_REQUEST)
    one = broker.consumer("m1", topic)
    answer = one.start(max_wait_ms=10_000)
    assert not answer.done
    broker.coordinator.release()
    broker.clock.advance(0)
    assert got(answer.result())[topic, 0].error == ErrorCode.UNKNOWN_SERVER_ERROR.code
    assert len(broker.coordinator.reads) == 1
    broker.coordinator.is_held, broker.coordinator.refusal = False, None
    assert one.one() == Got(), "the next one reads it anew"


def test_an_unknown_acquire_mode_is_refused(broker: ShareBroker) -> None:
    answer = broker.consumer("m1", broker.topic()).respond(share_acquire_mode=2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST.code
