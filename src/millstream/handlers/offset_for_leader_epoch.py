"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2        the client's own leader epoch
3        replica id
4        flexible
=======  ====================================================================================

Answers where the largest epoch at or below the one asked for ends (KIP-101, KIP-279, KIP-320), or
NOT_LEADER_OR_FOLLOWER while another broker may lead: a consumer that believes an old end would take
records for lost.

The client needs CLUSTER_ACTION, as a broker has it, or DESCRIBE on each topic.
"""

from __future__ import annotations

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from millstream.runtime.replicas.partition_requests import end_of_epoch
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look up the end of one epoch per partition."""
    access = access_of(services, context)
    not_allowed = frozenset[str]()
    if access is not None and not access.on_cluster(AclOperation.CLUSTER_ACTION, tell_denied=False):
        names = [topic.topic for topic in request.topics]
        not_allowed = frozenset(names) - access.allowed_names(
            AclOperation.DESCRIBE, AclResource.TOPIC, names
        )
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_refused(wanted, error) for wanted in topic.partitions]
                if topic.topic in not_allowed
                else [_look_up(services, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def failed(
    context: RequestContext, request: OffsetForLeaderEpochRequest, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    """Refuse every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_refused(wanted, error) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _look_up(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.partitions.get(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        end = end_of_epoch(partition, wanted.leader_epoch)
    except KafkaError as error:
        return _refused(wanted, error)
    return EpochEndOffset(
        error_code=0,
        partition=wanted.partition,
        leader_epoch=end.leader_epoch,
        end_offset=end.end_offset,
    )


def _refused(wanted: OffsetForLeaderPartition, error: KafkaError) -> EpochEndOffset:
    return EpochEndOffset(error_code=error.error.code, partition=wanted.partition)
