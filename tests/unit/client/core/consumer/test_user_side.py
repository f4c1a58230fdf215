"""What a consumer's user hears, and how often; and who may wait at a time."""

from __future__ import annotations

import pytest
from tests.client_twin.loop import TwinLoop
from tests.client_twin.member import TwinMember
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.consumer.errors import ConcurrentUseError
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> ReaderCluster:
    made = ReaderCluster(TwinLoop(5))
    made.create_topic("t", 2)
    return made


@pytest.fixture
def member(cluster: ReaderCluster) -> TwinMember:
    made = TwinMember(cluster, group_id=None)
    made.core.assign([T0])
    made.loop.run(made.poll(1_000))
    return made


def test_what_failed_many_times_while_nobody_polled_is_told_once(
    cluster: ReaderCluster, member: TwinMember
) -> None:
    read_one = cluster._read_one

    def refusing(broker, place, offset, epoch, endpoints):  # type: ignore[no-untyped-def]
        answer = read_one(broker, place, offset, epoch, endpoints)
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
        return answer

    cluster._read_one = refusing  # type: ignore[method-assign]
    member.loop.advance(60_000)
    cluster._read_one = read_one  # type: ignore[method-assign]
    cluster.fill("t", 0, 3)
    member.loop.advance(2_000)
    with pytest.raises(BrokerError) as caught:
        member.loop.run(member.poll(0))
    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(member.loop.run(member.poll(0))) == 3


def test_a_second_poll_at_the_same_time_is_refused_and_the_first_goes_on(
    cluster: ReaderCluster, member: TwinMember
) -> None:
    first = member.core.poll(1_000)
    for timeout_ms in (0, 1_000):
        with pytest.raises(ConcurrentUseError):
            member.core.poll(timeout_ms).result()
    member.loop.advance(1_100)
    assert first.result() is None
    assert member.core.poll(0).result() is None
