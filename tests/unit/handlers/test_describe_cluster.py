"""DescribeCluster: brokers, controller, and the endpoints that are not here."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def ask(
    broker: AdminBroker,
    version: int,
    *,
    operations: bool = False,
    endpoint_type: int = 1,
    listener: str = "PLAINTEXT",
) -> DescribeClusterResponse:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=operations, endpoint_type=endpoint_type
    )
    return broker.call(request, version, DescribeClusterResponse, listener=listener)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(broker: AdminBroker, version: int) -> None:
    response = ask(broker, version)
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.cluster_id, response.controller_id) == ("the-cluster", 1)
    (node,) = response.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (1, "broker.example", 9092, "r1")
    assert response.cluster_authorized_operations == -(2**31)
    assert ask(broker, version, operations=True).cluster_authorized_operations == 8096


def test_the_listener_decides_the_address(broker: AdminBroker) -> None:
    assert ask(broker, 1, listener="OTHER").brokers[0].port == 9093


def test_a_broker_without_the_clients_listener_is_not_told_of(broker: AdminBroker) -> None:
    node = BrokerNode(BrokerId(2), (Endpoint("PLAINTEXT", "inside.example", 9092),))
    broker.metadata.brokers[node.broker_id] = node
    assert [each.broker_id for each in ask(broker, 1).brokers] == [1, 2]
    assert [each.broker_id for each in ask(broker, 1, listener="OTHER").brokers] == [1]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoints(broker: AdminBroker, endpoint_type: int, code: ErrorCode) -> None:
    response = ask(broker, 2, endpoint_type=endpoint_type)
    assert response.error_code == code.code
    assert response.error_message
    assert (response.cluster_id, response.brokers) == ("", [])
