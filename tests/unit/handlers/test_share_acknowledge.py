"""ShareAcknowledge: epochs of the session, what is refused, what is persisted when."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.share_broker import ShareBroker

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import SHARE_VERSION, FinalizedFeatures

ACCEPT, RELEASE, REJECT, RENEW = [1], [2], [3], [4]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShareBroker]:
    made = ShareBroker(tmp_path)
    yield made
    made.close()


def test_it_is_answered_once_it_is_persisted(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(10)
    one = broker.consumer("m1", topic)
    one.fetch()
    broker.coordinator.is_held = True
    answer = one.acknowledge((0, 4, ACCEPT), (5, 9, [1, 2, 3, 0, 1]))
    assert not answer.done
    broker.coordinator.release()
    response = answer.result()
    assert response.acquisition_lock_timeout_ms == 30_000
    assert response.responses[0].topic_id == topic
    (update,) = broker.coordinator.updates
    assert (update.start_offset, update.delivery_complete_count) == (0, 9)
    assert update.state_batches == ((0, 5, 2, 1), (6, 6, 0, 1), (7, 8, 4, 1), (9, 9, 2, 1))


def test_a_write_that_fails_is_taken_back(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(10)
    one = broker.consumer("m1", topic)
    one.fetch()
    broker.coordinator.refusal = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert one.acknowledged((0, 9, ACCEPT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE.code
    broker.coordinator.refusal = None
    assert one.acknowledged((0, 9, ACCEPT)) == 0


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (5, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (1, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
def test_epochs(broker: ShareBroker, epoch: int, error: ErrorCode) -> None:
    topic = broker.topic()
    broker.records(10)
    one = broker.consumer("m1", topic)
    one.fetch()
    assert one.acknowledged((0, 3, ACCEPT), epoch=epoch) == error.code
    assert len(broker.shares.sessions) == (0 if epoch == -1 else 1)


def test_a_session_is_needed(broker: ShareBroker) -> None:
    one = broker.consumer("m1", broker.topic())
    for epoch in (-1, 3):
        found = one.acknowledged((0, 3, ACCEPT), epoch=epoch)
        assert found == ErrorCode.SHARE_SESSION_NOT_FOUND.code


def test_fetches_and_acknowledgements_share_the_epoch(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(5, 5)
    one = broker.consumer("m1", topic)
    one.fetch(max_records=5)
    assert one.acknowledged((0, 4, ACCEPT)) == 0
    assert one.one().acquired == [(5, 9, 1)]
    assert one.acknowledged((5, 9, ACCEPT)) == 0


@pytest.mark.parametrize(
    ("acks", "error"),
    [
        ([(0, 20, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(30, 31, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(5, 4, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 4, [])], ErrorCode.INVALID_REQUEST),
        ([(0, 4, [1, 1])], ErrorCode.INVALID_REQUEST),
        ([(0, 4, [7])], ErrorCode.INVALID_REQUEST),
        ([(0, 4, [-1])], ErrorCode.INVALID_REQUEST),
        ([(0, 4, RENEW)], ErrorCode.INVALID_REQUEST),
        ([(0, 4, ACCEPT), (3, 6, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 4, ACCEPT), (4, 6, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(5, 9, ACCEPT), (0, 3, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(10, 12, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 2**62, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(-3, 4, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_changes_nothing(
    broker: ShareBroker, acks: list[tuple[int, int, list[int]]], error: ErrorCode
) -> None:
    topic = broker.topic()
    broker.records(10, 5)
    one, two = broker.consumer("m1", topic), broker.consumer("m2", topic)
    one.fetch(max_records=10)
    two.fetch()
    assert one.acknowledged(*acks) == error.code
    assert broker.coordinator.updates == []
    assert one.acknowledged((0, 9, ACCEPT)) == 0


def test_renewing_is_of_version_2(broker: ShareBroker) -> None:
    topic = broker.topic()
    broker.records(10)
    one = broker.consumer("m1", topic)
    one.fetch()
    assert one.acknowledged((0, 9, RENEW), version=1) == ErrorCode.INVALID_REQUEST.code
    broker.clock.advance(29_000)
    assert one.acknowledged((0, 9, RENEW), renew=True) == 0
    broker.clock.advance(29_000)
    assert one.acknowledged((0, 9, ACCEPT)) == 0
    assert len(broker.coordinator.updates) == 1


def test_partitions_that_nobody_knows(broker: ShareBroker) -> None:
    topic = broker.topic()
    one = broker.consumer("m1", topic)
    one.fetch()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert one.acknowledged((0, 9, ACCEPT), index=4) == unknown
    one.topic_id = uuid.UUID(int=77).bytes
    assert one.acknowledged((0, 9, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID.code


def test_a_partition_that_nobody_has_fetched_here(broker: ShareBroker) -> None:
    broker.topic("t", 2)
    topic = broker.topic("u")
    one = broker.consumer("m1", topic)
    one.fetch()
    image = broker.metadata.topic("t")
    assert image is not None
    one.topic_id = image.topic_id
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert one.acknowledged((0, 9, ACCEPT)) == unknown


def test_share_groups_may_be_off(broker: ShareBroker) -> None:
    one = broker.consumer("m1", broker.topic())
    broker.metadata.features = FinalizedFeatures({SHARE_VERSION: 0})
    assert one.acknowledged((0, 9, ACCEPT)) == ErrorCode.UNSUPPORTED_VERSION.code
