"""Where partitions go: round robin as Kafka does it, and by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.controller.assignment import (
    assign_replicas,
    check_manual_replicas,
    check_replication_factor,
    manual_assignment,
)
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError

FIVE = [BrokerId(n) for n in range(5)]


def test_the_table_of_the_module() -> None:
    """Kafka's own example (``AdminUtils``): ten partitions, five brokers, three replicas."""
    assert assign_replicas(
        FIVE, partition_count=10, replication_factor=3, start_index=0, shift=0
    ) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_a_start_and_a_shift() -> None:
    assert assign_replicas(
        FIVE, partition_count=3, replication_factor=3, start_index=3, shift=1
    ) == [(3, 0, 1), (4, 1, 2), (0, 2, 3)]


def test_one_broker_keeps_all() -> None:
    assert assign_replicas(
        [BrokerId(7)], partition_count=3, replication_factor=1, start_index=9, shift=9
    ) == [(7,), (7,), (7,)]


@given(
    broker_count=st.integers(1, 9),
    partition_count=st.integers(0, 60),
    start_index=st.integers(0, 8),
    shift=st.integers(0, 8),
    data=st.data(),
)
def test_replicas_are_different_and_leaders_are_spread(
    broker_count: int, partition_count: int, start_index: int, shift: int, data: st.DataObject
) -> None:
    brokers = [BrokerId(10 + n) for n in range(broker_count)]
    factor = data.draw(st.integers(1, broker_count))
    grown_at = data.draw(st.integers(0, partition_count))

    def assign(count: int, first: int) -> list[tuple[BrokerId, ...]]:
        return assign_replicas(
            brokers,
            partition_count=count,
            replication_factor=factor,
            start_index=start_index,
            shift=shift,
            first_partition=first,
        )

    assignment = assign(partition_count, 0)
    assert len(assignment) == partition_count
    assert all(len(set(replicas)) == factor for replicas in assignment)
    assert all(set(replicas) <= set(brokers) for replicas in assignment)
    leaders = Counter(dict.fromkeys(brokers, 0))
    leaders.update(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    # Partitions added later have the leaders that they would have had from the beginning.
    later = assign(partition_count - grown_at, grown_at)
    assert [replicas[0] for replicas in later] == [r[0] for r in assignment[grown_at:]]


def test_more_replicas_than_brokers() -> None:
    check_replication_factor(5, FIVE)
    with pytest.raises(KafkaError, match="only 5 broker") as raised:
        check_replication_factor(6, FIVE)
    assert raised.value.error is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("replicas", "factor", "reason"),
    [
        ([], None, "an empty replica list"),
        ([0, 9], None, "broker 9, but no such broker is registered"),
        ([-1], None, "broker -1, but no such broker"),
        ([2, 1, 2], None, "the broker 2 more than once"),
        ([0, 1], 3, r"2 replica\(s\), but this is not consistent with previous partitions"),
    ],
)
def test_replicas_that_cannot_be(replicas: Sequence[int], factor: int | None, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        check_manual_replicas(replicas, FIVE, factor)
    assert raised.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_may_come_in_any_order() -> None:
    assert manual_assignment([(1, [1, 0]), (0, [0, 1])], FIVE) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        ([(0, [0]), (0, [1])], "multiple manual partition assignments for partition 0"),
        ([(1, [0])], "consecutive 0-based integer sequence"),
        ([(0, [0]), (2, [0])], "consecutive 0-based integer sequence"),
        ([(0, [0]), (1, [0, 1])], "not consistent with previous"),
    ],
)
def test_assignments_that_cannot_be(requested: list[tuple[int, list[int]]], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        manual_assignment(requested, FIVE)
