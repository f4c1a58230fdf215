"""DescribeCluster (key 60), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        brokers, cluster id, controller, authorized operations (KIP-700)
1        endpoint type: brokers 1, controllers 2 (KIP-919)
2        fenced brokers, when asked for (KIP-1073)
=======  ====================================================================================

Controllers have no listeners of their own: a question for them is answered with
MISMATCHED_ENDPOINT_TYPE, as a broker of Apache Kafka does. A broker that is not live is not known.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers import authorized_operations
from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millstream.runtime.services import Services

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """List the brokers of the cluster."""
    _check_endpoint_type(request.endpoint_type)
    metadata = services.metadata
    brokers = []
    for broker in metadata.seen_from(context.connection.listener).values():
        endpoint = broker.endpoint(context.connection.listener)
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
            )
        )
    operations = authorized_operations.NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = authorized_operations.of_cluster(access_of(services, context))
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE.code,
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


def failed(
    context: RequestContext, request: DescribeClusterRequest, error: KafkaError
) -> DescribeClusterResponse:
    """Refuse the request."""
    return DescribeClusterResponse(
        error_code=error.error.code, error_message=error.message, cluster_id="", brokers=[]
    )


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == _CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if endpoint_type != _BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
        )
