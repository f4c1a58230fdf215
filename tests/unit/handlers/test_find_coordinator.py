from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.handlers.group_calls import BROKER, Calls

from millstream.model.broker import Endpoint
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


def find(
    calls: Calls, *keys: str, version: int = 6, key_type: int = 0, **options: object
) -> FindCoordinatorResponse:
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    elif version >= 1:
        request = FindCoordinatorRequest(key=keys[0], key_type=key_type)
    else:
        request = FindCoordinatorRequest(key=keys[0])
    return calls.call(request, version, FindCoordinatorResponse, **options)


@pytest.mark.parametrize("version", range(4))
def test_one_key(calls: Calls, version: int) -> None:
    response = find(calls, "g", version=version)
    assert response.error_code == 0
    assert (response.node_id, response.host, response.port) == (1, "broker.example", 9092)
    if version >= 1:
        assert response.error_message == "NONE"


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_keys(calls: Calls, version: int) -> None:
    found = find(calls, "g", "", "h", version=version).coordinators
    assert [(c.key, c.node_id, c.port, c.error_code) for c in found] == [
        ("g", 1, 9092, 0),
        ("", 1, 9092, 0),
        ("h", 1, 9092, 0),
    ]


def test_the_listener_decides_the_address(calls: Calls) -> None:
    assert find(calls, "g", listener="OTHER").coordinators[0].host == "inner"


def test_the_first_question_makes_the_topic(calls_without_topic: Calls) -> None:
    calls = calls_without_topic
    assert find(calls, "g").coordinators[0].node_id == 1
    image = calls.site.metadata.topic("__consumer_offsets")
    assert image is not None
    assert len(image.partitions) == 50


def test_a_topic_that_cannot_be_made_leaves_no_coordinator(calls_without_topic: Calls) -> None:
    calls = calls_without_topic
    calls.controller.refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    found = find(calls, "g").coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (15, -1, "", -1)
    assert found.error_message == "too few brokers"


def test_a_coordinator_whose_process_ended_is_none(calls: Calls) -> None:
    """It is registered still; a client that is led there would wait for it."""
    calls.site.metadata.missing.add(BROKER)
    found = find(calls, "g").coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE.code, -1)


def test_a_coordinator_that_may_have_been_replaced_does_not_name_itself(calls: Calls) -> None:
    """A client that is told so comes back, is refused, and asks here again."""
    index = calls.site.groups.partition_for("g")
    partition = calls.site.partitions.get("__consumer_offsets", index)
    partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    found = find(calls, "g").coordinators[0]
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE.code, -1)


def test_a_coordinator_without_the_clients_listener_is_none(calls: Calls) -> None:
    """Its addresses are meant for others."""
    brokers = calls.site.metadata.brokers
    brokers[BROKER] = replace(brokers[BROKER], endpoints=(Endpoint("PLAINTEXT", "inside", 9092),))
    assert find(calls, "g").coordinators[0].host == "inside"
    found = find(calls, "g", listener="OTHER").coordinators[0]
    assert (found.error_code, found.host) == (ErrorCode.COORDINATOR_NOT_AVAILABLE.code, "")


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("key_type", [1, 2, 7])
def test_other_coordinators_are_not_here(calls: Calls, version: int, key_type: int) -> None:
    response = find(calls, "k", version=version, key_type=key_type)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.port) == (42, -1, -1)
    assert found.error_message
