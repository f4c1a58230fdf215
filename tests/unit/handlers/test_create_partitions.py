"""CreatePartitions: growing topics, and what cannot be done."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)


def grow(
    broker: AdminBroker,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int = 3,
    validate_only: bool = False,
    timeout_ms: int = 1000,
) -> dict[str, tuple[int, str | None]]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    results = broker.call(request, version, CreatePartitionsResponse).results
    return {result.name: (result.error_code, result.error_message) for result in results}


def count(broker: AdminBroker, name: str) -> int:
    image = broker.metadata.topic(name)
    assert image is not None
    return len(image.partitions)


@pytest.mark.parametrize("version", range(4))
def test_growing(broker: AdminBroker, version: int) -> None:
    broker.create("t")
    broker.fill("t", b"kept")
    assert grow(broker, ("t", 3, None), version=version) == {"t": (0, None)}
    assert count(broker, "t") == 3
    assert broker.partitions.get("t", 0).log.log_end_offset == 1
    assert broker.partitions.get("t", 2).log.log_end_offset == 0


def test_growing_by_hand(broker: AdminBroker) -> None:
    broker.create("t")
    assert grow(broker, ("t", 3, [[1], [1]])) == {"t": (0, None)}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (("t", 2, None), ErrorCode.INVALID_PARTITIONS),
        (("t", 1, None), ErrorCode.INVALID_PARTITIONS),
        (("t", -1, None), ErrorCode.INVALID_PARTITIONS),
        (("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("absent", 3, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("a/b", 3, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_cannot_be(
    broker: AdminBroker, topic: tuple[str, int, list[list[int]] | None], code: ErrorCode
) -> None:
    broker.create("t", 2)
    broker.create("good")
    results = grow(broker, topic, ("good", 2, None))
    assert results[topic[0]][0] == code.code
    assert (results[topic[0]][1] is None) == (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert results["good"] == (0, None)
    assert (count(broker, "t"), count(broker, "good")) == (2, 2)


def test_a_topic_given_twice(broker: AdminBroker) -> None:
    broker.create("t")
    results = grow(broker, ("t", 2, None), ("t", 3, None))
    assert results == {"t": (ErrorCode.INVALID_REQUEST.code, "Duplicate topic name.")}
    assert count(broker, "t") == 1


def test_validating_changes_nothing(broker: AdminBroker) -> None:
    broker.create("t")
    assert grow(broker, ("t", 3, None), validate_only=True) == {"t": (0, None)}
    assert count(broker, "t") == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all(broker: AdminBroker, timeout_ms: int) -> None:
    broker.create("t")
    results = grow(broker, ("t", 2, None), timeout_ms=timeout_ms)
    assert results == {"t": (ErrorCode.REQUEST_TIMED_OUT.code, None)}


def test_a_huge_wish(broker: AdminBroker) -> None:
    broker.create("t")
    (outcome,) = grow(broker, ("t", 2**31 - 1, None)).values()
    assert outcome[0] == ErrorCode.POLICY_VIOLATION.code
