"""Markers: to whom, again, and when a transaction is complete."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_scene import EPOCH, ID, Scene, error_of

from millstream.coordinator.result import (
    LocalMarkers,
    OutboundRequest,
    TopicChange,
    TransactionEnd,
    TransactionProducer,
)
from millstream.coordinator.transaction.states import TransactionState
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE = BrokerId(1)
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT


def prepared(scene: Scene, partitions: dict[str, set[int]]) -> None:
    """Commit a transaction whose markers are on their way."""
    producer = scene.init()
    scene.add(producer, partitions)
    scene.holds_markers = True
    scene.end(producer)
    assert scene.state is PREPARE_COMMIT


def on_their_way(scene: Scene) -> dict[int, WriteTxnMarkersRequest]:
    requests = {}
    for each in scene.sent:
        assert isinstance(each, OutboundRequest)
        assert isinstance(each.request, WriteTxnMarkersRequest)
        assert int(each.target) not in requests, "one request for a broker at a time"
        requests[int(each.target)] = each.request
    return requests


def written(scene: Scene) -> set[tuple[str, int]]:
    return {(each[0].topic, each[0].partition) for each in scene.leaders.written}


def test_each_leader_gets_one_request_that_says_who_coordinates() -> None:
    scene = Scene()
    scene.topic("t", 4, (1, 2))
    prepared(scene, {"t": {0, 1, 2}})
    requests = on_their_way(scene)
    assert set(requests) == {1, 2}
    (marker,) = requests[1].markers
    assert (marker.producer_id, marker.producer_epoch) == (101, 1)
    assert marker.transaction_result is True
    assert marker.coordinator_epoch == EPOCH
    assert marker.transaction_version == 2
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0, 2])]
    scene.deliver()
    assert written(scene) == {("t", 0), ("t", 1), ("t", 2)}
    assert scene.state is COMPLETE_COMMIT
    assert scene.of().partitions == {}


def test_a_marker_of_version_1_says_so() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, client_version=0)
    scene.holds_markers = True
    scene.end(producer, commit=False, version=1)
    (marker,) = on_their_way(scene)[1].markers
    assert (marker.producer_epoch, marker.transaction_version) == (0, 0)
    assert marker.transaction_result is False


def test_what_is_decided_while_a_request_is_on_its_way_shares_the_next_one() -> None:
    scene = Scene()
    scene.holds_markers = True
    for number in range(5):
        producer = scene.init(f"id-{number}")
        scene.add(producer, None, f"id-{number}")
        scene.end(producer, f"id-{number}")
    assert len(scene.sent) == 1
    first = scene.sent.pop()
    assert isinstance(first, OutboundRequest)
    assert isinstance(first.request, WriteTxnMarkersRequest)
    scene.carry_out(first.event(scene.leaders.answer(first.request), scene.now))
    assert len(on_their_way(scene)[1].markers) == 4
    scene.deliver()
    for number in range(5):
        assert scene.of(f"id-{number}").state is COMPLETE_COMMIT


def test_markers_for_partitions_of_this_broker_need_no_request() -> None:
    scene = Scene(broker_id=HERE)
    scene.topic("t", 4, (1, 2))
    prepared(scene, {"t": {0, 1, 2}})
    (local,) = (each for each in scene.sent if isinstance(each, LocalMarkers))
    (other,) = (each for each in scene.sent if isinstance(each, OutboundRequest))
    assert other.target == 2
    assert local.timeout_ms == other.timeout_ms == scene.settings.marker_timeout_ms
    assert list(local.ends) == [
        (TransactionEnd(TransactionProducer(101, 1), True, EPOCH, 2), {"t": {0, 2}})
    ]
    scene.deliver()
    assert written(scene) == {("t", 0), ("t", 1), ("t", 2)}
    assert scene.state is COMPLETE_COMMIT


def test_what_is_decided_while_markers_are_written_here_is_written_together_then() -> None:
    scene = Scene(broker_id=HERE)
    scene.holds_markers = True
    for number in range(5):
        producer = scene.init(f"id-{number}")
        scene.add(producer, None, f"id-{number}")
        scene.end(producer, f"id-{number}", commit=number != 3)
    (first,) = scene.sent
    assert isinstance(first, LocalMarkers)
    scene.sent.clear()
    scene.carry_out(first.event(scene.leaders.write(first), scene.now))
    (second,) = scene.sent
    assert isinstance(second, LocalMarkers)
    assert [end.committed for end, _ in second.ends] == [True, True, False, True]
    scene.deliver()
    for number in range(5):
        wanted = COMPLETE_COMMIT if number != 3 else TransactionState.COMPLETE_ABORT
        assert scene.of(f"id-{number}").state is wanted


def test_a_marker_that_cannot_be_written_here_is_sent_where_its_leader_is_then() -> None:
    scene = Scene(broker_id=HERE)
    scene.leaders.errors["t", 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    prepared(scene, {"t": {0, 1}})
    scene.deliver()
    assert written(scene) == {("t", 0)}
    assert scene.state is PREPARE_COMMIT
    scene.leaders.errors.clear()
    scene.cluster.leaders["t", 1] = 2
    scene.advance(1_000)
    assert set(on_their_way(scene)) == {2}
    scene.deliver()
    assert written(scene) == {("t", 0), ("t", 1)}
    assert scene.state is COMPLETE_COMMIT


def test_a_partition_here_that_knows_a_newer_coordinator_ends_the_attempts() -> None:
    scene = Scene(broker_id=HERE)
    scene.leaders.errors["t", 1] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    prepared(scene, {"t": {0, 1}})
    scene.deliver()
    scene.leaders.errors.clear()
    scene.advance(60_000)
    assert not scene.sent
    assert scene.state is PREPARE_COMMIT


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_a_partition_that_refuses_is_asked_again_where_its_leader_is_then(
    error: ErrorCode,
) -> None:
    scene = Scene()
    scene.leaders.errors["t", 1] = error
    prepared(scene, {"t": {0, 1}})
    scene.deliver()
    assert scene.state is PREPARE_COMMIT
    assert written(scene) == {("t", 0)}
    scene.leaders.errors.clear()
    scene.cluster.leaders["t", 1] = 2
    scene.advance(1_000)
    (marker,) = on_their_way(scene)[2].markers
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_request_that_failed_is_sent_again(error: ErrorCode) -> None:
    scene = Scene()
    prepared(scene, {"t": {0, 1}})
    scene.fail_sent(error)
    assert not scene.sent
    scene.advance(1_000)
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


def test_an_answer_that_leaves_a_partition_out_does_not_count_for_it() -> None:
    scene = Scene()
    prepared(scene, {"t": {0}})
    scene.deliver(lambda _: WriteTxnMarkersResponse(markers=[]))
    assert scene.state is PREPARE_COMMIT
    scene.advance(1_000)
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


def test_a_partition_without_a_leader_is_waited_for() -> None:
    scene = Scene()
    scene.cluster.leaders["t", 0] = -1
    prepared(scene, {"t": {0, 1}})
    scene.deliver()
    scene.advance(60_000)
    assert scene.state is PREPARE_COMMIT
    scene.cluster.leaders["t", 0] = 3
    scene.advance(1_000)
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


def test_markers_that_wait_for_their_turn_follow_a_leader_that_moves() -> None:
    scene = Scene()
    prepared(scene, {"t": {0}})
    other = scene.init("other")
    scene.add(other, {"t": {1}}, "other")
    scene.end(other, "other")
    assert set(on_their_way(scene)) == {1}
    scene.cluster.leaders["t", 1] = 2
    first = scene.sent.pop()
    assert isinstance(first, OutboundRequest)
    assert isinstance(first.request, WriteTxnMarkersRequest)
    scene.carry_out(first.event(scene.leaders.answer(first.request), scene.now))
    assert set(on_their_way(scene)) == {2}
    scene.deliver()
    assert scene.of("other").state is COMPLETE_COMMIT


def test_a_topic_that_grows_gets_its_markers() -> None:
    scene = Scene()
    prepared(scene, {"t": {0}})
    grown = TopicChange("t", ZERO_TOPIC_ID, deleted=False)
    scene.carry_out(scene.coordinator.topic_changed(grown, scene.now))
    assert scene.state is PREPARE_COMMIT
    scene.deliver()
    assert written(scene) == {("t", 0)}
    assert scene.state is COMPLETE_COMMIT


def test_partitions_of_a_deleted_topic_get_no_marker() -> None:
    scene = Scene()
    scene.topic("gone", 2, (2,))
    prepared(scene, {"t": {0}, "gone": {0, 1}})
    deleted = TopicChange("gone", ZERO_TOPIC_ID, deleted=True)
    scene.cluster.leaders = {
        key: each for key, each in scene.cluster.leaders.items() if key[0] == "t"
    }
    scene.carry_out(scene.coordinator.topic_changed(deleted, scene.now))
    scene.leaders.errors = dict.fromkeys(
        [("gone", 0), ("gone", 1)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    scene.deliver()
    scene.advance(7_000)
    assert scene.state is COMPLETE_COMMIT
    assert written(scene) == {("t", 0)}


def test_a_topic_that_is_deleted_and_made_again_gets_its_markers() -> None:
    """The producer has written to the new topic before this broker heard that the old one is gone:
    without a marker the new one's last stable offset would never move again.
    """
    scene = Scene()
    scene.topic("again", 1, (2,))
    scene.cluster.leaders["again", 0] = -1
    prepared(scene, {"t": {0}, "again": {0}})
    scene.deliver()
    del scene.cluster.leaders["again", 0]
    deleted = TopicChange("again", ZERO_TOPIC_ID, deleted=True)
    scene.carry_out(scene.coordinator.topic_changed(deleted, scene.now))
    assert scene.state is PREPARE_COMMIT
    scene.advance(1_000)
    scene.topic("again", 1, (3,))
    scene.advance(1_000)
    scene.deliver()
    assert written(scene) == {("t", 0), ("again", 0)}
    assert scene.state is COMPLETE_COMMIT


def test_each_partition_that_is_not_in_the_metadata_is_waited_for_by_itself() -> None:
    scene = Scene()
    scene.topic("late", 1, (2,))
    prepared(scene, {"never": {0}, "late": {0}})
    scene.fail_sent(ErrorCode.BROKER_NOT_AVAILABLE)
    scene.advance(4_000)
    del scene.cluster.leaders["late", 0]
    scene.fail_sent(ErrorCode.BROKER_NOT_AVAILABLE)
    scene.advance(3_000)
    assert scene.state is PREPARE_COMMIT, "it may be told of again"
    scene.topic("late", 1, (2,))
    scene.advance(1_000)
    scene.deliver()
    assert written(scene) == {("late", 0)}
    assert scene.state is COMPLETE_COMMIT


def test_a_partition_that_is_not_in_the_metadata_may_only_just_have_been_created() -> None:
    scene = Scene()
    prepared(scene, {"new": {0}})
    scene.advance(2_000)
    assert scene.state is PREPARE_COMMIT
    scene.topic("new", 1, (2,))
    scene.advance(1_000)
    scene.deliver()
    assert written(scene) == {("new", 0)}
    assert scene.state is COMPLETE_COMMIT


def test_a_partition_that_does_not_exist_does_not_hold_a_transaction_for_ever() -> None:
    scene = Scene()
    prepared(scene, {"never": {0}, "t": {0}})
    scene.deliver()
    scene.advance(4_000)
    assert scene.state is PREPARE_COMMIT
    scene.advance(3_000)
    assert scene.state is COMPLETE_COMMIT


def test_metadata_is_not_waited_for_while_nobody_is_listened_to() -> None:
    scene = Scene()
    prepared(scene, {"new": {0}})
    scene.now_ms += 60_000
    scene.coordinator.postpone(60_000.0)
    scene.advance(1_000)
    assert scene.state is PREPARE_COMMIT
    scene.topic("new", 1, (2,))
    scene.advance(1_000)
    scene.deliver()
    assert written(scene) == {("new", 0)}
    assert scene.state is COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
def test_a_partition_that_holds_nothing_of_it_any_more_is_done(error: ErrorCode) -> None:
    scene = Scene()
    scene.leaders.errors["t", 0] = error
    prepared(scene, {"t": {0, 1}})
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


def test_a_fenced_coordinator_sends_no_more_and_a_loaded_one_goes_on() -> None:
    scene = Scene()
    scene.topic("t", 4, (1, 2))
    scene.leaders.errors["t", 0] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    prepared(scene, {"t": {0, 1, 2}})
    scene.deliver()
    scene.advance(60_000)
    assert not scene.sent
    assert scene.state is PREPARE_COMMIT
    scene.leaders.errors.clear()
    scene.move()
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_a_coordinator_that_moves_writes_all_markers_of_what_was_decided(commit: bool) -> None:
    scene = Scene()
    scene.topic("t", 4, (1, 2))
    producer = scene.init()
    scene.add(producer, {"t": {0, 1, 2, 3}})
    scene.holds_markers = True
    scene.end(producer, commit=commit)
    one = scene.sent.pop()
    assert isinstance(one, OutboundRequest)
    assert isinstance(one.request, WriteTxnMarkersRequest)
    scene.carry_out(one.event(scene.leaders.answer(one.request), scene.now))
    scene.move()
    assert error_of(lambda: scene.end(producer, commit=commit)) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.deliver()
    assert scene.state is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    )
    assert {each[0] for each in scene.leaders.written} == {
        TopicPartition("t", index) for index in range(4)
    }
    assert {each[3] for each in scene.leaders.written} == {commit}


def test_an_abort_without_partitions_completes_at_once() -> None:
    scene = Scene()
    producer = scene.init()
    scene.holds_markers = True
    scene.end(producer, commit=False)
    assert not scene.sent
    assert scene.state is TransactionState.COMPLETE_ABORT


@pytest.mark.slow
def test_10000_open_transactions_end_in_few_requests() -> None:
    scene = Scene()
    scene.holds_markers = True
    producers = {f"id-{number}": scene.init(f"id-{number}") for number in range(10_000)}
    for transactional_id, producer in producers.items():
        scene.add(producer, {"t": {0}}, transactional_id)
    scene.now_ms += 60_000
    scene.coordinator.expire_ids(scene.now)
    scene.abort_timed_out()
    requests = 0
    while scene.sent:
        request = scene.sent.pop(0)
        assert isinstance(request, OutboundRequest)
        assert isinstance(request.request, WriteTxnMarkersRequest)
        scene.carry_out(request.event(scene.leaders.answer(request.request), scene.now))
        requests += 1
    assert requests <= 3
    assert len(scene.leaders.written) == 10_000
    assert all(
        transaction.state is TransactionState.COMPLETE_ABORT
        for _, transaction in scene.coordinator.transactions
    )
    assert scene.of("id-0").producer_epoch == 1
    assert ID not in producers
