"""DeleteTopics: by name, by id, wrong in each way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

INVALID = ErrorCode.INVALID_REQUEST.code
Named = tuple[str | None, TopicId]


def by_name(
    broker: AdminBroker, *names: str, version: int = 5, timeout_ms: int = 1000
) -> dict[str | None, int]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    responses = broker.call(request, version, DeleteTopicsResponse).responses
    assert len({response.name for response in responses}) == len(responses)
    return {response.name: response.error_code for response in responses}


def delete(broker: AdminBroker, *topics: Named) -> list[DeletableTopicResult]:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    request = DeleteTopicsRequest(topics=states, timeout_ms=1000)
    return broker.call(request, 6, DeleteTopicsResponse).responses


@pytest.mark.parametrize("version", range(1, 6))
def test_by_name(broker: AdminBroker, version: int) -> None:
    broker.create("t", 2)
    broker.create("other")
    assert by_name(broker, "t", "absent", "a/b", version=version) == {"t": 0, "absent": 3, "a/b": 3}
    assert broker.metadata.topic("t") is None
    assert broker.metadata.topic("other") is not None
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.partitions.get("t", 0)
    assert {path.name for path in broker.directory.glob("t-*")} == {
        path.name for path in broker.directory.glob("t-*.*-delete")
    }


def test_by_id_and_by_name_in_version_6(broker: AdminBroker) -> None:
    one, two = broker.create("one"), broker.create("two")
    results = delete(broker, (None, one.topic_id), ("two", ZERO_TOPIC_ID))
    assert {(r.name, r.topic_id, r.error_code, r.error_message) for r in results} == {
        ("one", one.topic_id, 0, None),
        ("two", two.topic_id, 0, None),
    }


def test_a_name_given_twice_is_deleted_not_at_all(broker: AdminBroker) -> None:
    broker.create("twice")
    broker.create("once")
    assert by_name(broker, "twice", "once", "twice") == {"twice": INVALID, "once": 0}
    assert broker.metadata.topic("twice") is not None


def test_wrong_in_each_way(broker: AdminBroker) -> None:
    t = broker.create("t").topic_id
    unknown = TopicId(bytes(15) + b"x")
    for topics, expected in (
        ([(None, ZERO_TOPIC_ID)], [(None, ZERO_TOPIC_ID, INVALID)]),
        ([("t", t)], [("t", t, INVALID)]),
        ([(None, t), (None, t)], [(None, t, INVALID)]),
        ([("t", ZERO_TOPIC_ID), (None, t)], [("t", t, INVALID)]),
        ([(None, t), (None, t), ("t", ZERO_TOPIC_ID)], [(None, t, INVALID), ("t", t, INVALID)]),
        ([(None, unknown)], [(None, unknown, ErrorCode.UNKNOWN_TOPIC_ID.code)]),
    ):
        results = delete(broker, *topics)
        assert [(r.name, r.topic_id, r.error_code) for r in results] == expected
        assert all(r.error_message for r in results)
    assert broker.metadata.topic("t") is not None


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all(broker: AdminBroker, timeout_ms: int) -> None:
    broker.create("t")
    assert by_name(broker, "t", timeout_ms=timeout_ms) == {"t": ErrorCode.REQUEST_TIMED_OUT.code}
    assert broker.metadata.topic("t") is not None


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_may_be_disabled(tmp_path: Path, version: int, code: ErrorCode) -> None:
    broker = AdminBroker(tmp_path, {"delete.topic.enable": "false"})
    broker.create("t")
    assert by_name(broker, "t", version=version) == {"t": code.code}
    assert broker.metadata.topic("t") is not None
    broker.close()


def test_the_name_is_free_again(broker: AdminBroker) -> None:
    first = broker.create("t")
    broker.fill("t", b"old")
    by_name(broker, "t")
    second = broker.create("t")
    assert second.topic_id != first.topic_id
    assert broker.partitions.get("t", 0).log.log_end_offset == 0
