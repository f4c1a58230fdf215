"""DescribeReplicas (key 10004), version 0: how far replicas on this broker reach.

The controller asks it where no replica is known to have all committed records. A controller that
another one has replaced is answered STALE_CONTROLLER_EPOCH.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.describe_replicas import (
    AskedReplica,
    DescribedReplica,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeReplicasRequest
) -> DescribeReplicasResponse:
    """Tell the last epoch and the end of each replica that is here."""
    cluster_of(services).metadata.check_controller(request.controller_epoch)
    return DescribeReplicasResponse(
        replicas=[_described(services, each) for each in request.replicas]
    )


def failed(
    context: RequestContext, request: DescribeReplicasRequest, error: KafkaError
) -> DescribeReplicasResponse:
    """Refuse the request."""
    return DescribeReplicasResponse(error_code=error.error.code, replicas=[])


def _described(services: Services, asked: AskedReplica) -> DescribedReplica:
    image = services.metadata.topic_by_id(asked.topic_id)
    if image is None:
        return DescribedReplica(present=False)
    end = cluster_of(services).local_log_end(TopicPartition(image.name, asked.index))
    if end is None:
        return DescribedReplica(present=False)
    return DescribedReplica(
        present=True, last_epoch=end.last_epoch, log_end_offset=end.log_end_offset
    )
