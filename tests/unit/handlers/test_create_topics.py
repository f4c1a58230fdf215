"""CreateTopics: what is created, told, refused."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode, StorageError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def wanted(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    assignments: list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignments or []
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=text)
            for key, text in configs.items()
        ],
    )


def create(
    broker: AdminBroker, *topics: CreatableTopic, version: int = 7, **more: bool | int
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), **more)
    return broker.call(request, version, CreateTopicsResponse).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic(broker: AdminBroker, version: int) -> None:
    (result,) = create(broker, wanted(partitions=3), version=version)
    image = broker.metadata.topic("t")
    assert image is not None
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.topic_config_error_code == 0
    if version >= 7:
        assert result.topic_id == image.topic_id
    assert broker.partitions.get("t", 2).log.log_end_offset == 0


def test_the_settings_are_told_with_their_sources(broker: AdminBroker) -> None:
    (result,) = create(broker, wanted(retention_ms="5"))
    assert result.configs is not None
    names = [config.name for config in result.configs]
    assert names == sorted(names)
    told = {config.name: config for config in result.configs}
    own, default = told["retention.ms"], told["segment.bytes"]
    assert (own.value, own.config_source) == ("5", 1)
    assert (default.value, default.config_source, default.read_only) == ("1073741824", 5, False)


@pytest.mark.parametrize("version", [2, 4])
def test_minus_one_asks_for_the_default(broker: AdminBroker, version: int) -> None:
    (result,) = create(broker, wanted(partitions=-1, replicas=-1), version=version)
    assert result.error_code == 0
    image = broker.metadata.topic("t")
    assert image is not None
    assert len(image.partitions) == 4


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("the.re_"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (wanted(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (wanted(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (wanted(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(partitions=0, replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted(retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (wanted(retention_ms=None), ErrorCode.INVALID_CONFIG),
        (wanted(no_such="1"), ErrorCode.INVALID_CONFIG),
        (wanted(remote_storage_enable="true"), ErrorCode.INVALID_CONFIG),
        (wanted(partitions=0, retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (wanted(assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (wanted(partitions=-1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_cannot_be(
    broker: AdminBroker, topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    broker.create("there")
    broker.create("the_re_")
    result, good = create(broker, topic, wanted("good"), validate_only=validate_only)
    if result.name == "good":
        result, good = good, result
    assert result.error_code == code.code
    assert result.error_message
    assert (result.topic_id, result.num_partitions, result.configs) == (ZERO_TOPIC_ID, -1, [])
    assert good.error_code == 0
    assert (broker.metadata.topic("good") is None) == validate_only


@pytest.mark.parametrize(
    "assignments",
    [
        [(1, [1])],
        [(0, [1]), (2, [1])],
        [(0, [1]), (0, [1])],
        [(-1, [1])],
        [(0, [])],
        [(0, [7])],
        [(0, [1, 1])],
        [(0, [1]), (1, [1, 2])],
    ],
)
def test_assignments_that_cannot_be(
    broker: AdminBroker, assignments: list[tuple[int, list[int]]]
) -> None:
    (result,) = create(broker, wanted(partitions=-1, replicas=-1, assignments=assignments))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT.code


def test_an_assignment_by_hand(broker: AdminBroker) -> None:
    assignments = [(1, [1]), (0, [1])]
    (result,) = create(broker, wanted(partitions=-1, replicas=-1, assignments=assignments))
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_a_name_given_twice_is_created_not_at_all(broker: AdminBroker) -> None:
    results = create(broker, wanted("twice"), wanted("once"), wanted("twice", 2))
    assert {r.name: r.error_code for r in results} == {"twice": 42, "once": 0}
    assert len(results) == 2
    assert broker.metadata.topic("twice") is None


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all(broker: AdminBroker, timeout_ms: int) -> None:
    (result,) = create(broker, wanted(), timeout_ms=timeout_ms)
    assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT.code, None)
    assert broker.metadata.topic("t") is None


def test_a_huge_wish_is_refused_without_being_counted_out(broker: AdminBroker) -> None:
    results = create(broker, wanted(partitions=2**31 - 1), wanted("small"))
    assert {r.error_code for r in results} == {ErrorCode.POLICY_VIOLATION.code}
    assert broker.metadata.topic("small") is None


def test_the_answer_waits_for_the_disk(broker: AdminBroker) -> None:
    broker.offload.held = True
    pending = broker.start(CreateTopicsRequest(topics=[wanted()]), 7)
    assert not pending.done
    assert broker.metadata.topic("t") is None
    broker.offload.held = False
    broker.offload.release()
    assert pending.done
    assert broker.metadata.topic("t") is not None


def test_a_disk_that_fails(broker: AdminBroker) -> None:
    broker.store.close().result()
    (result,) = create(broker, wanted())
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
    assert isinstance(broker.failures[0], StorageError)
    broker.reopen_store()
